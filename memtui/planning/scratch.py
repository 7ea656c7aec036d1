"""The folder that takes what is thrown away: made, measured and removed."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memtui.planning.leftovers import find_leftovers, kill_leftovers

_PREFIX = "memtui-thrown-"
_STALE_SECONDS = 3600


@dataclass(frozen=True)
class Written:
    """What lies in a folder: files and the bytes that they take on the disk."""

    files: int
    total_bytes: int


def scratch_bases() -> list[Path]:
    """Where a scratch folder may be, the best first: a disk, as a checkpoint in memory could exhaust the machine.

    Some file systems cannot take a layer's writes, NFS and a container's own among them: /dev/shm is the last resort.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    named = [tempfile.gettempdir(), "/var/tmp", "/tmp", cache, "/dev/shm"]
    real = dict.fromkeys(os.path.realpath(path) for path in named)
    return [Path(path) for path in real if os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)]


def make_scratch(base: Path) -> Path:
    """A new folder that only this user can open. Raises OSError.

    Those of processes that were killed before removing them go now, with what still runs of their programs.
    """
    _sweep(base)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))


def _sweep(base: Path) -> None:
    for folder in base.glob(_PREFIX + "*-*"):
        with suppress(OSError, ValueError):
            info = folder.lstat()
            maker = int(folder.name[len(_PREFIX) :].partition("-")[0])
            if (
                info.st_uid == os.getuid()
                and not os.path.exists(f"/proc/{maker}")
                and _abandoned(folder, info.st_mtime)
            ):
                kill_leftovers(str(folder))
                remove_scratch(folder)


def _abandoned(folder: Path, changed: float) -> bool:
    """Whether its maker, whose pid nobody has, is gone: in a container of its own it may be alive under that pid."""
    running = find_leftovers(str(folder))
    if running:
        return all(_namespace(pid) == _namespace(os.getpid()) for pid in running)
    return time.time() - changed > _STALE_SECONDS


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def measure(folders: Iterable[Path], since_ns: int = 0) -> Written:
    """The regular files below folders that were changed after `since_ns` (the wall clock's nanoseconds)."""
    files = total = 0
    for folder in folders:
        for path in _walk(folder):
            info = os.lstat(path)
            if stat.S_ISREG(info.st_mode) and info.st_ctime_ns > since_ns:
                files += 1
                total += info.st_blocks * 512
    return Written(files, total)


def remove_scratch(folder: Path) -> None:
    """Remove the folder with all that a program left in it, whatever rights it set. Raises OSError."""
    for _ in _walk(folder):
        pass
    shutil.rmtree(folder)


def _walk(folder: Path) -> Iterator[str]:
    """What lies below a folder, each folder made one that can be read and emptied before going in."""
    if not folder.is_dir():
        return
    os.chmod(folder, 0o700)
    for parent, folders, names in os.walk(folder):
        for name in folders:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
        yield from (os.path.join(parent, name) for name in names)
