"""A memory snapshot's file: private, and never in the place of another one unless that is wanted."""

from __future__ import annotations

import contextlib
import gzip
import os
import pathlib
import pickle
import secrets
from types import TracebackType
from typing import Any, Optional

_PROTOCOL = 4


class SnapshotFile:
    """A place for a snapshot, held from the beginning: `with` it `write` the snapshot, else it is as it was.

    The file is made at once, so that what cannot be written is known before anything is recorded; its name gets what
    is in it when it is complete. Raises OSError, FileExistsError where there is a file and `overwrite` is not set.
    """

    def __init__(self, path: str, *, overwrite: bool = False) -> None:
        self.path, self._overwrite = path, overwrite
        self._held: Optional[str] = None

    def __enter__(self) -> SnapshotFile:
        if os.path.isdir(self.path):
            raise IsADirectoryError(21, "is a folder", self.path)
        if not self._overwrite and os.path.lexists(self.path):
            raise FileExistsError(17, "is there already", self.path)
        folder, name = os.path.split(self.path)
        held = os.path.join(folder, f".{name[:200]}.{secrets.token_hex(4)}")
        os.close(os.open(held, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        self._held = held
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._held is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._held)

    def write(self, snapshot: dict[str, Any]) -> int:
        """Pickles plain containers, gzipped where the name ends so; the bytes that were written."""
        assert self._held is not None
        opener = gzip.open if self.path.endswith(".gz") else open
        with opener(self._held, "wb") as file:
            pickle.dump(snapshot, file, _PROTOCOL)
        size_bytes = pathlib.Path(self._held).stat().st_size
        if not self._overwrite:  # a file that has come meanwhile stops it
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.replace(self._held, self.path)
        self._held = None
        return size_bytes


def free_name(folder: str, stem: str) -> str:
    """A name in a folder that no file has: STEM.pickle, STEM-2.pickle..."""
    number = 1
    while True:
        path = os.path.join(folder, f"{stem}{f'-{number}' if number > 1 else ''}.pickle")
        if not os.path.lexists(path):
            return path
        number += 1
