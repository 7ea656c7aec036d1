"""One agent's messages on their way to a viewer: of live frames that the link does not carry only some are left."""

from __future__ import annotations

import re
import time
from collections import deque

from memtui.wire import codec

#: Of one agent so much waits here before it is left to wait at the agent.
_MOST_BYTES = 1 << 20
#: So many live frames may wait; of more every second one goes.
_MOST_LIVE = 16
#: A frame that is as old when it comes is of the history, and stays: an agent sends one ten times a second.
_PAST_NS = 500_000_000
_FRAME = b'{"kind":"frame"'
_TIME = re.compile(rb'"time_ns":(\d{1,19})')
_LOST = re.compile(rb'"lost_frames":(\d{1,18})')


class Stream:
    """Whole messages are taken in, and pieces of them given out."""

    def __init__(self) -> None:
        self._splitter = codec.Splitter()
        self._waiting: deque[tuple[bytes, bool]] = deque()  # and whether it is a live frame
        self._live = self._bytes = self.lost_frames = 0
        self._head = b""  # partly given out

    @property
    def full(self) -> bool:
        """Whether no more is to be taken from the agent for now."""
        return self._bytes >= _MOST_BYTES

    @property
    def empty(self) -> bool:
        """Whether all was given out."""
        return not (self._head or self._waiting)

    def take(self, data: bytes) -> None:
        """Takes in what the agent has sent; raises CodecError."""
        for body in self._splitter.feed(data):
            self._put(body)

    def _put(self, body: bytes) -> None:
        live = False
        if body.startswith(_FRAME):
            found = _TIME.search(body, 0, 256)
            live = found is not None and time.monotonic_ns() - int(found[1]) < _PAST_NS
        self._waiting.append((body, live))
        self._bytes += len(body)
        self._live += live
        if self._live > _MOST_LIVE:
            self._thin()

    def _thin(self) -> None:
        kept: deque[tuple[bytes, bool]] = deque()
        number = 0
        for body, live in self._waiting:
            number += live
            # The newest of them stays.
            if live and (self._live - number) % 2:
                self.lost_frames += 1
                self._bytes -= len(body)
            else:
                kept.append((body, live))
        self._waiting = kept
        self._live = sum(live for _, live in kept)

    def piece(self, most: int) -> bytes:
        """The next bytes, `most` at most; nothing where nothing waits."""
        if not self._head and self._waiting:
            body, live = self._waiting.popleft()
            self._bytes -= len(body)
            self._live -= live
            if live and self.lost_frames:
                body = _LOST.sub(self._counted, body, count=1)
            self._head = len(body).to_bytes(codec.LENGTH_BYTES, "big") + body
        given, self._head = self._head[:most], self._head[most:]
        return given

    def _counted(self, found: re.Match[bytes]) -> bytes:
        return b'"lost_frames":%d' % (int(found[1]) + self.lost_frames)
