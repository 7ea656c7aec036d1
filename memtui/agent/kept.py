"""A file with the last figures of a program that ran out of memory while nobody watched it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterable
from typing import Optional

from ..wire import paths
from . import VERSION

#: Of a user's programs, the newest.
FILES_KEPT = 8
#: Of one program; beyond that it is begun again, with what is newest.
_MOST_BYTES = 4 << 20
#: A recorded step may be as large as this by itself.
_LARGEST_MESSAGE = 256 << 10
_PREFIX, _SUFFIX = "oom-", ".log"


class KeptFile:
    """A log as `memtui open` reads it: what a viewer would have been told, a line each. For the agent's thread."""

    def __init__(self) -> None:
        self._path: Optional[pathlib.Path] = None
        self._size = 0

    def keep(self, past: Callable[[], list[bytes]], news: list[bytes]) -> None:
        """Writes `past`, encoded messages, the first time, and later only `news`; where it cannot, nothing is kept."""
        try:
            if self._path is None or self._size > _MOST_BYTES:
                self._begin(past())
            else:
                self._append(news)
        except (OSError, paths.PathError):
            self._path = None

    def end(self, bye: bytes) -> None:
        """Adds how the program ended, where something was kept of it."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._append([bye])

    def _begin(self, messages: list[bytes]) -> None:
        folder = paths.kept_folder()
        path = folder / f"{_PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}{_SUFFIX}"
        temporary = path.with_suffix(".part")
        data = _head() + b"".join(map(_line, _bounded(messages)))
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(file, data)
        finally:
            os.close(file)
        os.rename(temporary, path)
        if self._path is not None and self._path != path:
            self._path.unlink()
        self._path, self._size = path, len(data)
        _drop_old(folder, path)

    def _append(self, messages: Iterable[bytes]) -> None:
        assert self._path is not None
        data = b"".join(map(_line, messages))
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            _write(file, data)
        finally:
            os.close(file)
        self._size += len(data)


def _head() -> bytes:
    now = time.monotonic_ns()
    head = {"kind": "log", "time_ns": now, "wall_time": round(time.time(), 3)}
    head.update({"format": "memtui log", "version": 1, "written_by": f"memtui {VERSION}"})
    return json.dumps(head, separators=(",", ":")).encode() + b"\n"


def _line(message: bytes) -> bytes:
    """A message without its length, its kind and its time in front."""
    plain = json.loads(message[4:])
    head = {"kind": plain.pop("kind"), "time_ns": plain.pop("time_ns", 0)}
    return json.dumps({**head, **plain}, separators=(",", ":")).encode() + b"\n"


def _bounded(messages: list[bytes]) -> list[bytes]:
    """The newest that have room, none of them large."""
    chosen, room = [], _MOST_BYTES // 2
    first, *others = messages
    for message in reversed(others):
        if len(message) <= min(room, _LARGEST_MESSAGE):
            room -= len(message)
            chosen.append(message)
    return [first, *reversed(chosen)]


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _drop_old(folder: pathlib.Path, newest: pathlib.Path) -> None:
    """Removes the oldest of these files, of whichever program; their names begin with their time."""
    names = sorted(name for name in os.listdir(folder) if name.startswith(_PREFIX) and name.endswith(_SUFFIX))
    for name in names[: max(0, len(names) - FILES_KEPT)]:
        if name != newest.name:
            with contextlib.suppress(OSError):
                (folder / name).unlink()
