"""Output that has arrived and is not parsed yet: bounded, and honest about what it drops."""

from __future__ import annotations

import collections
import re

#: What is kept while nobody looks.
HIDDEN_BYTES = 256 * 1024

#: What is kept when the display has fallen behind by more than HIDDEN_BYTES: a few screens, soon parsed.
BEHIND_BYTES = 64 * 1024

#: Where parsing can begin again after a gap: after a line, or at what starts a line or a sequence.
_RESUME = re.compile(rb"\n|(?=[\r\x1b])")

#: A question to the terminal, to be answered also while nobody looks.
_QUESTION = re.compile(rb"\x1b\[(?:[>?]?[0-9;]*[cn]|\?[0-9;]*\$p|18t)|\x1bZ")


class Backlog:
    """A queue of output in bytes, each piece old (`replayed`) or live."""

    def __init__(self) -> None:
        self._pieces: collections.deque[tuple[bytes, bool]] = collections.deque()
        self.size = 0

    def append(self, data: bytes, replayed: bool) -> bool:
        """Add output; whether the program asks its terminal something in it and waits for an answer."""
        if data:  # an empty piece would look like the end
            self._pieces.append((data, replayed))
        self.size += len(data)
        return not replayed and b"\x1b" in data and _QUESTION.search(data) is not None

    def trim(self, limit_bytes: int) -> bytes:
        """Drop the oldest output so that at most `limit_bytes` are left; returns what was dropped."""
        dropped: list[bytes] = []
        while self.size > limit_bytes:
            data, replayed = self._pieces.popleft()
            excess = self.size - limit_bytes
            self.size -= len(data)
            if excess < len(data):
                resume = _RESUME.search(data, excess)
                cut = resume.end() if resume is not None else excess
                if cut < len(data):  # an empty piece would look like the end
                    self._pieces.appendleft((data[cut:], replayed))
                self.size += len(data) - cut
                data = data[:cut]
            dropped.append(data)
        return b"".join(dropped)

    def take(self, limit_bytes: int) -> tuple[bytes, bool]:
        """Up to `limit_bytes` of the oldest output, all of it old or all of it live; empty where there is none."""
        if not self._pieces:
            return b"", False
        data, replayed = self._pieces.popleft()
        parts = [data[:limit_bytes]]
        taken = len(parts[0])
        if taken < len(data):
            self._pieces.appendleft((data[taken:], replayed))
        while taken < limit_bytes and self._pieces and self._pieces[0][1] == replayed:
            data, _ = self._pieces.popleft()
            part = data[: limit_bytes - taken]
            if len(part) < len(data):
                self._pieces.appendleft((data[len(part) :], replayed))
            parts.append(part)
            taken += len(part)
        self.size -= taken
        return b"".join(parts), replayed

    def clear(self) -> None:
        """Forget everything."""
        self._pieces.clear()
        self.size = 0
