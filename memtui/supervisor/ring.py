"""The last bytes of a program's output, each addressed by its offset from the beginning."""

from __future__ import annotations

import collections

CHUNK_BYTES = 64 * 1024


class OutputRing:
    """A bounded buffer that forgets its oldest 64 KiB at a time, and is every viewer's queue at once.

    Each viewer keeps only an offset into it: one copy of the output for all, and a slow viewer costs nothing.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = max(capacity_bytes, CHUNK_BYTES)
        self._chunks: collections.deque[bytearray] = collections.deque()
        self.start = 0
        self.end = 0

    def append(self, data: bytes) -> None:
        """Add output at the end; forget what no longer fits."""
        self.end += len(data)
        taken = 0
        while taken < len(data):
            if not self._chunks or len(self._chunks[-1]) == CHUNK_BYTES:
                self._chunks.append(bytearray())
            last = self._chunks[-1]
            piece = data[taken : taken + CHUNK_BYTES - len(last)]
            last += piece
            taken += len(piece)
        while self.end - self.start > self._capacity:
            self.start += len(self._chunks.popleft())

    def read(self, offset: int, limit_bytes: int) -> bytes:
        """Up to `limit_bytes` from `offset` on, which lies between `start` and `end`; never across a chunk."""
        index, within = divmod(offset - self.start, CHUNK_BYTES)
        if offset >= self.end:
            return b""
        return bytes(self._chunks[index][within : within + limit_bytes])
