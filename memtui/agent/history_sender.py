"""Brings a recorded history to the viewer that asked for it, in so little time that the training does not feel it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Optional

from ..wire import codec
from ..wire.frames import Request
from ..wire.histories import HistoryNews
from .history_parts import HistoryParts
from .history_recorder import HistoryRecorder, Taken
from .server import Server

#: Of each tick so much processor time is given to it: 0.5 % of it, and half of that where all is sent soon even so.
_WORK_NS, _LEAST_WORK_NS = 500_000, 250_000
#: What an event takes, at most, and how many ticks are soon.
_EVENT_NS, _SOON = 3_000, 200
#: At the program's end.
_LAST_SECONDS, _LAST_WORK_NS, _LAST_NS = 0.5, 50_000_000, 60_000_000_000
#: Between two pieces of work the training gets the interpreter, should it wait for it.
_BREATH_SECONDS = 0.0005


class HistorySender:
    """One viewer's order at a time; the viewer is the server's."""

    def __init__(self) -> None:
        self._viewer: Any = None
        self._messages: Optional[Iterator[Optional[bytes]]] = None
        self._work_ns = _WORK_NS
        self._end = HistoryNews("complete")

    def ask(self, server: Server, recorder: HistoryRecorder, request: Request, viewer: Any) -> None:
        """A viewer wants steps; it is told where another one is being served."""
        if self._viewer is not None or recorder.active:
            server.send(viewer, codec.encode(HistoryNews("refused", "a viewer is getting a history already")))
            return
        self._viewer = viewer
        recorder.ask(request.steps, stacks=request.stacks)
        self.go_on(server, recorder)

    @property
    def patience_s(self) -> float:
        """How long the program's end waits for what is still to be sent."""
        return _LAST_SECONDS if self._viewer is not None else 0.0

    def end(self, server: Server, recorder: HistoryRecorder) -> None:
        """The program ends, and nothing of it is disturbed any more: what was recorded is sent at once."""
        until_ns = time.monotonic_ns() + int(_LAST_SECONDS * 1e9)
        while (self._messages is not None or recorder.untaken) and time.monotonic_ns() < until_ns:
            self._work_ns = _LAST_WORK_NS
            self.go_on(server, recorder, until_ns + _LAST_NS)
            server.poll(1_000_000)

    def go_on(self, server: Server, recorder: HistoryRecorder, now_ns: Optional[int] = None) -> None:
        """At each tick: what is new, and the next parts of what was recorded; what is due at `now_ns` is read."""
        viewer = self._viewer
        if viewer is None:
            recorder.taken.clear()
            return
        if not server.has(viewer):
            recorder.cancel("the viewer has gone")
            self._forget(recorder)
            return
        while recorder.news:
            news = recorder.news.popleft()
            server.send(viewer, codec.encode(news))
            if news.state == "refused":
                self._forget(recorder)
                return
        server.flush()
        recorder.read(time.monotonic_ns() if now_ns is None else now_ns)
        if recorder.taken:
            self._begin(server, recorder.taken.popleft())
        elif self._messages is not None and not server.waits(viewer):
            self._work(server, recorder, self._messages)

    def _begin(self, server: Server, taken: Taken) -> None:
        events = taken.figures["events"]
        self._work_ns = min(_WORK_NS, max(_LEAST_WORK_NS, events * _EVENT_NS // _SOON))
        self._messages = HistoryParts(taken.snapshot).messages()
        server.send(self._viewer, codec.encode(HistoryNews("sending", "", taken.figures, taken.notices)))
        self._end = HistoryNews("complete", "", taken.figures, taken.notices)

    def _work(self, server: Server, recorder: HistoryRecorder, messages: Iterator[Optional[bytes]]) -> None:
        end_ns = time.thread_time_ns() + self._work_ns
        try:
            for message in messages:
                if message is not None:
                    server.send(self._viewer, message)
                if time.thread_time_ns() >= end_ns:
                    return
                time.sleep(_BREATH_SECONDS)
            news = self._end
        except (LookupError, TypeError, ValueError, AttributeError) as error:  # a history like no known torch's
            news = HistoryNews("refused", f"this torch's history could not be read: {type(error).__name__}: {error}")
        server.send(self._viewer, codec.encode(news))
        self._forget(recorder)

    def _forget(self, recorder: HistoryRecorder) -> None:
        self._viewer = self._messages = None
        recorder.news.clear()
        recorder.taken.clear()
