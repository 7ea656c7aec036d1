"""Asks the agent for the segments while their tab is shown, brings them to it, and answers what is asked of them."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace
from typing import Optional

from memtui.analysis import units
from memtui.analysis.segments import words
from memtui.analysis.segments.space import Limits
from memtui.analysis.segments.summary import Space, limits_of
from memtui.analysis.shapes.asked import asked_shape
from memtui.analysis.shapes.outlook import UNTOLD, outlook, shape_lines
from memtui.session.readings import ShapeForecast
from memtui.wire.frames import Segments

from . import roles
from .feed import Feed, absent
from .widgets.header import elapsed
from .widgets.segments import FIT, SegmentMap

#: Between two requests; what is older than OLD_NS has been asked for and is not answered yet.
EVERY_S = 5.0
OLD_NS = 12_000_000_000
#: Known limits move with every look at the driver: nothing is worked out again for that before so long.
LIMITS_S = 5.0
#: Of the time between two looks, so much goes to a batch that is worked out.
_SLICE_S = 0.05

_NONE_RECORDED = "no segments in this recording until now: they are in it from when somebody looked at them"
_ENDED = "the program has ended, and there is no map of its segments: they are read only while this tab is looked at"
_PAUSED = "paused, and no segments were read before: p goes on"
_NO_STEPS = "no step has been recorded: d records the next one, and a batch of another size needs two different ones"
_ROLES = {
    "cache": roles.GOOD,
    "driver": roles.GOOD,
    "returned": roles.WARNING,
    "perhaps": roles.WARNING,
    "no": roles.BAD,
}

_Job = Generator[None, None, list[ShapeForecast]]


class LiveSegments:
    """The newest segments of the device that is shown; in a recording those of its time."""

    def __init__(self, feed: Feed, pane: SegmentMap) -> None:
        self.feed, self.pane = feed, pane
        pane.asked, pane.wanted = self._answer, self._want
        self._asked_at: Optional[float] = None
        self._asked_ns: Optional[int] = None  # first of the requests that are not answered
        self._told: Optional[Segments] = None
        self._limits: Optional[Limits] = None
        self._built_at = 0.0
        self._known: dict[str, int] = {}  # the capacity of each device
        self._device = ""
        self._fit_bytes: Optional[int] = None
        self._said: tuple[tuple[str, str], ...] = ()  # that does not change with the segments
        self._job: Optional[_Job] = None

    def look(self, device: str, now_ns: int, *, paused: bool = False) -> None:
        """Asks where it is time to, and brings the tab up to date; called while it is shown.

        Paused, nothing is asked for, and what was last shown of the device stays.
        """
        session, pane = self.feed.session, self.pane
        live = not self.feed.replay and session.end is None
        if live and not paused:
            self._ask()
        if device != self._device:
            self._device, self._fit_bytes, self._said, self._job = device, None, (), None
            pane.marked = None
        found = session.segments(device)
        if paused and found is not None and self._told is not None and self._told.device == device:
            found = self._told
        fragments = session.fragments(device)
        pane.trend = () if fragments is None else tuple(fragments.found)
        if found is None or found.notice:
            pane.space, self._told = None, None
            pane.hint = (roles.TEXT, found.notice) if found is not None else self._hint(paused=paused)
            return
        if found is not self._told:
            self._asked_ns = None
        self._build(found, device, now_ns)
        self._go_on()
        age_ns = max(0, now_ns - found.time_ns)
        if session.end is not None and not self.feed.replay:
            pane.age = f"{elapsed(session.end.time_ns - found.time_ns)} before the end"
        else:
            pane.age = f"{elapsed(age_ns)} {'before' if self.feed.replay else 'ago'}"
        if live and age_ns > OLD_NS and self._asked_ns is not None:
            pane.age += " · newer ones are asked for: they come between two phases"

    def _build(self, found: Segments, device: str, now_ns: int) -> None:
        now = time.monotonic()
        if found is self._told and now - self._built_at < LIMITS_S:
            return
        limits = self._limits_now(device, now_ns)
        if found is self._told and limits == self._limits:
            return
        try:
            self.pane.space = Space(found, limits)
        except ValueError as error:
            self.pane.space, self.pane.hint = None, (roles.WARNING, f"the agent's answer makes no sense: {error}")
        self._told, self._limits, self._built_at = found, limits, now
        self._tell()

    def _limits_now(self, device: str, now_ns: int) -> Limits:
        """While reserved memory changes from one look to the next, what the device has is as it was known last."""
        limits = limits_of(self.feed.session, device, now_ns)
        known = self._known.get(device)
        if limits.capacity_bytes is None and known is not None and not self.feed.replay:
            limits = replace(limits, capacity_bytes=known)
        elif limits.capacity_bytes is not None:
            self._known[device] = limits.capacity_bytes
        return limits

    def _ask(self) -> None:
        now = time.monotonic()
        if self._asked_at is not None and now - self._asked_at < EVERY_S:
            return
        self._asked_at = now
        if self.feed.request("segments") and self._asked_ns is None:
            self._asked_ns = self.feed.now_ns()

    def _want(self) -> None:
        self._asked_at = None

    def _hint(self, *, paused: bool) -> tuple[str, str]:
        """What the empty tab says: why there is no map."""
        session, reason = self.feed.session, absent(self.feed, "segments")
        if reason:
            return roles.TEXT, reason
        if self.feed.replay:
            return roles.TEXT, _NONE_RECORDED
        if session.end is not None:
            return roles.TEXT, _ENDED
        if self._asked_ns is None:
            return (roles.TEXT, _PAUSED) if paused else (roles.WARNING, "there is no agent to ask for segments")
        waited = elapsed(self.feed.now_ns() - self._asked_ns)
        lost = session.connection == "lost"
        then = "the agent has not answered since then" if lost else "the training answers between two phases"
        return roles.TEXT, f"asked for {waited} ago; {then}"

    # Questions

    def _answer(self, question: str, text: str) -> None:
        """What was typed; nothing takes the answers away."""
        self._fit_bytes, self._said, self._job = None, (), None
        if not question:
            pass
        elif question == FIT:
            try:
                self._fit_bytes = units.parse_size(text)
            except ValueError as error:
                self._said = ((roles.BAD, str(error)),)
            if self._fit_bytes == 0:
                self._fit_bytes, self._said = None, ((roles.TEXT, "0 bytes always fit"),)
        else:
            self._batch(text)
        self._tell()

    def _batch(self, text: str) -> None:
        session, device = self.feed.session, self._device
        try:
            asked = asked_shape(text)
        except ValueError as error:
            self._said = ((roles.BAD, str(error)),)
            return
        recorded = session.recorded(device)
        if not recorded:
            self._said = ((roles.TEXT, _NO_STEPS),)
            return
        limits = self._limits_now(device, self.feed.now_ns())
        capacity, highest = limits.most_bytes, session.steps.highest(device)
        self._said = ((roles.DIM, f"a batch of {text}: worked out from the recorded steps"),)
        self._job = outlook(
            recorded,
            asked,
            highest_bytes=None if highest is None else highest.bytes_held,
            capacity_bytes=capacity,
            total_bytes=limits.total_bytes,
        )

    def _go_on(self) -> None:
        """Works on the batch for a moment."""
        if self._job is None:
            return
        until = time.monotonic() + _SLICE_S
        try:
            while time.monotonic() < until:
                next(self._job)
        except StopIteration as end:
            found = [each for each in end.value if each.asked]
            self._job = None
            failed = any(each.reason or each.failed_bytes is not None for each in found)
            self._said = tuple((roles.WARNING if failed else roles.TEXT, line) for line in shape_lines(found))
            self._tell()
        except ValueError:
            self._job, self._said = None, ((roles.TEXT, UNTOLD),)
            self._tell()

    def _tell(self) -> None:
        pane = self.pane
        pane.answers = self._said
        if self._fit_bytes is not None and pane.space is not None:
            fit = pane.space.ask(self._fit_bytes)
            pane.answers = ((_ROLES.get(fit.how, roles.TEXT), words.fit_text(fit)),)
