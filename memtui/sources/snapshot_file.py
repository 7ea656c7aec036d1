"""A memory snapshot's file: private, and never in the place of another one unless that is wanted."""

from __future__ import annotations

import contextlib
import gzip
import os
import pickle
import secrets
from types import TracebackType
from typing import Any, Optional

_PROTOCOL = 4


class SnapshotFile:
    """A place for a snapshot, held from the beginning: `with` it `write` the snapshot, else it is as it was.

    The file is made at once, so that what cannot be written is known before anything is recorded; it gets a name when
    it is complete, and so leaves nothing behind where this process is killed. A file system that knows no files without
    a name has a hidden one meanwhile. Raises OSError, FileExistsError where there is a file and `overwrite` is not set.
    """

    def __init__(self, path: str, *, overwrite: bool = False) -> None:
        self.path, self._overwrite = path, overwrite
        self._file: Optional[int] = None
        self._held: Optional[str] = None  # its name until it is complete, where it has to have one

    def __enter__(self) -> SnapshotFile:
        if os.path.isdir(self.path):
            raise IsADirectoryError(21, "is a folder", self.path)
        if not self._overwrite and os.path.lexists(self.path):
            raise FileExistsError(17, "is there already", self.path)
        self._file = _without_name(os.path.dirname(self.path) or ".")
        if self._file is None:
            held = self._hidden()
            self._file = os.open(held, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            self._held = held
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._file is not None:
            os.close(self._file)
        if self._held is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._held)

    def write(self, snapshot: dict[str, Any]) -> int:
        """Pickles plain containers, gzipped where the name ends so; the bytes that were written."""
        assert self._file is not None
        with open(self._file, "wb", closefd=False) as file:
            if self.path.endswith(".gz"):
                with gzip.GzipFile("", "wb", fileobj=file) as packed:
                    pickle.dump(snapshot, packed, _PROTOCOL)
            else:
                pickle.dump(snapshot, file, _PROTOCOL)
        size_bytes = os.fstat(self._file).st_size
        if self._held is None:
            # Where there is a file its place is taken in one step, and that takes a name.
            name = self._hidden() if self._overwrite else self.path
            os.link(_place_of(self._file), name, src_dir_fd=self._file)  # else the link itself would be linked
            self._held = name if self._overwrite else None
        elif not self._overwrite:  # a file that has come meanwhile stops it
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        if self._held is not None:
            os.replace(self._held, self.path)
            self._held = None
        return size_bytes

    def _hidden(self) -> str:
        folder, name = os.path.split(self.path)
        return os.path.join(folder, f".{name[:200]}.{secrets.token_hex(4)}")


def _without_name(folder: str) -> Optional[int]:
    """A file in `folder` that nobody sees; None where its file system has none such, or none that could get a name."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        file = os.open(folder, os.O_RDWR | os.O_TMPFILE, 0o600)
    except OSError:
        return None  # why a file cannot be made at all is found when one with a name is
    if not os.path.exists(_place_of(file)):
        os.close(file)
        return None
    return file


def _place_of(file: int) -> str:
    return f"/proc/self/fd/{file}"


def free_name(folder: str, stem: str) -> str:
    """A name in a folder that no file has: STEM.pickle, STEM-2.pickle..."""
    number = 1
    while True:
        path = os.path.join(folder, f"{stem}{f'-{number}' if number > 1 else ''}.pickle")
        if not os.path.lexists(path):
            return path
        number += 1
