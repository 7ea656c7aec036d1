"""How many bytes may be under way: no more than the link carries in a second or two, so that what comes is new."""

from __future__ import annotations

import time
from collections import deque

_FIRST, _LEAST, _MOST = 32 << 10, 2 << 10, 512 << 10
#: Bytes that were taken in so soon after they were sent may be more; so late, they are too many.
_SOON_SECONDS, _LATE_SECONDS = 0.5, 1.5


class Window:
    """Counts packed bytes that the viewer has not taken in yet."""

    def __init__(self) -> None:
        self.size = _FIRST
        self._sent = self._taken = 0
        self._times: deque[tuple[int, int, float]] = deque()  # sent in all, under way then, and when
        self._less_at = 0

    @property
    def room(self) -> int:
        """How much more may be sent."""
        return self.size - (self._sent - self._taken)

    def send(self, count: int) -> None:
        """So much was sent."""
        self._sent += count
        self._times.append((self._sent, self._sent - self._taken, time.monotonic()))

    def take(self, count: int) -> None:
        """So much of it was taken in."""
        self._taken = min(self._taken + count, self._sent)
        newest = None
        while self._times and self._times[0][0] <= self._taken:
            newest = self._times.popleft()
        if newest is None:
            return
        total, flying, sent = newest
        took = time.monotonic() - sent
        if took > _LATE_SECONDS and total > self._less_at:
            # What is under way already would say the same again.
            self._less_at = self._sent
            self.size = max(_LEAST, min(self.size, int(flying / took)))  # of a second
        elif took < _SOON_SECONDS and 2 * flying >= self.size:
            self.size = min(_MOST, self.size + count)
