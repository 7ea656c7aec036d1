"""Asks the agent for the live tensors while their tab is shown, and brings them to it."""

from __future__ import annotations

import time
from typing import Optional

from memtui.analysis.tensors import Choice, build_table, categories_of
from memtui.wire.frames import Tensors

from . import roles
from .feed import Feed, absent
from .widgets.header import elapsed
from .widgets.tensors import TensorList

#: Between two requests; what is older than OLD_NS has been asked for and is not answered yet.
EVERY_S = 5.0
OLD_NS = 12_000_000_000

_NONE_RECORDED = "no tensors in this recording until now: they are in it from when somebody looked at them"
_NEVER_ASKED = (
    "the program has ended, and there is no list of its tensors: they are listed only while this tab is looked at, and "
    "nobody did"
)
_NEVER_ANSWERED = (
    "the program has ended before it answered, and there is no list of its tensors: they are listed between two phases"
)
_ELSEWHERE = "; 4 shows those of a recorded step"
_PAUSED = "paused, and no tensors were listed before: p goes on"


class LiveTensors:
    """The newest tensors of the device that is shown, as a table; in a recording those of its time."""

    def __init__(self, feed: Feed, pane: TensorList) -> None:
        self.feed, self.pane = feed, pane
        self._asked_at: Optional[float] = None
        self._asked_ns: Optional[int] = None  # first of the requests that are not answered
        self._built: tuple[Optional[Tensors], Optional[Choice]] = (None, None)

    def look(self, device: str, now_ns: int, *, paused: bool = False) -> None:
        """Asks where it is time to, and brings the tab up to date; called while it is shown.

        Paused, nothing is asked for, and what was last shown of the device stays.
        """
        session, pane = self.feed.session, self.pane
        if not self.feed.replay and session.end is None and not paused:
            self._ask()
        found = session.tensors(device)
        before = self._built[0]
        if paused and found is not None and before is not None and before.device == device:
            found = before
        if found is None:
            pane.table, pane.hint = None, self._hint(device, paused=paused)
            self._built = (None, None)
            return
        if found is not self._built[0]:
            self._asked_ns = None
        if found is not self._built[0] or pane.choice != self._built[1]:
            self._built = (found, pane.choice)
            pane.categories = categories_of(found)
            pane.table = build_table(found, pane.choice)
        age_ns = max(0, now_ns - found.time_ns)
        live = not self.feed.replay and session.end is None
        if session.end is not None and not self.feed.replay:
            pane.age = f"{elapsed(session.end.time_ns - found.time_ns)} before the end"
        else:
            pane.age = f"{elapsed(age_ns)} {'before' if self.feed.replay else 'ago'}"
        if live and age_ns > OLD_NS and self._asked_ns is not None:
            pane.age += " · newer ones are asked for: they come between two phases"

    def _ask(self) -> None:
        now = time.monotonic()
        if self._asked_at is not None and now - self._asked_at < EVERY_S:
            return
        self._asked_at = now
        if self.feed.request("tensors") and self._asked_ns is None:
            self._asked_ns = self.feed.now_ns()

    def _hint(self, device: str, *, paused: bool) -> tuple[str, str]:
        """What the empty tab says: why there is no list, and where else to look."""
        session, reason = self.feed.session, absent(self.feed, "tensors")
        if reason:
            return roles.TEXT, reason
        if self.feed.replay:
            return roles.TEXT, _NONE_RECORDED
        if session.end is not None:
            reason = _NEVER_ASKED if self._asked_ns is None else _NEVER_ANSWERED
            return roles.TEXT, reason + (_ELSEWHERE if session.recorded(device) else "")
        if self._asked_ns is None:
            return (roles.TEXT, _PAUSED) if paused else (roles.WARNING, "there is no agent to ask for tensors")
        waited = elapsed(self.feed.now_ns() - self._asked_ns)
        lost = session.connection == "lost"
        then = "the agent has not answered since then" if lost else "the training answers between two phases"
        return roles.TEXT, f"asked for {waited} ago; {then}"
