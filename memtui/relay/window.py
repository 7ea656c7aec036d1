"""How many bytes may be under way: no more than the link carries in a second or two, so that what comes is new."""

from __future__ import annotations

import time
from collections import deque

_FIRST, _LEAST, _MOST = 32 << 10, 8 << 10, 512 << 10
#: Bytes that were taken in so soon after they were sent may be more; so late, they are too many.
_SOON_SECONDS, _LATE_SECONDS = 0.5, 1.5


class Window:
    """Counts packed bytes that the viewer has not taken in yet."""

    def __init__(self) -> None:
        self.size = _FIRST
        self._sent = self._taken = 0
        self._times: deque[tuple[int, float]] = deque()  # how much was sent in all, and when
        self._halved_at = 0

    @property
    def room(self) -> int:
        """How much more may be sent."""
        return self.size - (self._sent - self._taken)

    def send(self, count: int) -> None:
        """So much was sent."""
        self._sent += count
        self._times.append((self._sent, time.monotonic()))

    def take(self, count: int) -> None:
        """So much of it was taken in."""
        self._taken = min(self._taken + count, self._sent)
        while self._times and self._times[0][0] <= self._taken:
            total, sent = self._times.popleft()
            took = time.monotonic() - sent
            if took > _LATE_SECONDS and total > self._halved_at:
                # What is under way already says the same again.
                self._halved_at = self._sent
                self.size = max(_LEAST, self.size // 2)
            elif took < _SOON_SECONDS:
                self.size = min(_MOST, self.size + count)
