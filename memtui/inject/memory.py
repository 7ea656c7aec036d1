"""Another process's memory, through one descriptor of /proc/PID/mem."""

from __future__ import annotations

import os
import struct
from types import TracebackType

from .errors import Gone


class Memory:
    """Belongs to the program that the process ran when it was opened: after an exec it reaches nothing any more."""

    def __init__(self, pid: int) -> None:
        """Raises OSError; PermissionError says that the process may not be traced either."""
        self._file = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the descriptor."""
        os.close(self._file)

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes; raises OSError where not all of them are there."""
        data = os.pread(self._file, size, address)
        if not data and size:
            raise Gone("its memory is gone: it has ended, or runs another program now")
        if len(data) != size:
            raise OSError(f"{size} bytes at {address:#x} are not all there")
        return data

    def word(self, address: int) -> int:
        """An unsigned 64-bit word."""
        return int(struct.unpack("<Q", self.read(address, 8))[0])

    def write(self, address: int, data: bytes) -> None:
        """All of `data`, also where the process itself may not write; raises OSError."""
        written = os.pwrite(self._file, data, address)
        if written != len(data):
            raise Gone("its memory is gone: it has ended, or runs another program now")
