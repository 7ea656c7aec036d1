"""Asks the agent for recorded steps, and brings those that come to their tab."""

from __future__ import annotations

from typing import Callable, Optional

from memtui.analysis import recorded_words, units
from memtui.analysis.events import event_text
from memtui.analysis.history_words import history_line
from memtui.analysis.recorded import StepTimeline
from memtui.session.session import Session
from memtui.wire.frames import RecordedStep

from . import roles
from .feed import Feed, absent
from .widgets.step import Step


class RecordedSteps:
    """What was asked for, and what came of it; `say` puts a line on the screen."""

    def __init__(self, feed: Feed, pane: Step, say: Callable[[str], None]) -> None:
        self.feed, self.pane, self._say = feed, pane, say
        self._asked_ns: Optional[int] = None
        self._begun_ns = feed.now_ns()
        self._made: dict[tuple[str, int], StepTimeline] = {}
        self._seen: tuple[RecordedStep, ...] = ()

    def ask(self) -> None:
        """Asks for the next step, or says why that is impossible."""
        reason = absent(self.feed, "step") or recorded_words.cannot_record(self.feed.session, replay=self.feed.replay)
        if reason is None and not self.feed.request("record"):
            reason = "no step can be recorded: there is no agent to ask"
        if reason is not None:
            self._say(reason)
            return
        self._asked_ns = self.feed.now_ns()
        self._say("recording the next step")

    def save(self) -> None:
        """Saves the allocator's history of the next step, or says why that is impossible."""
        reason = absent(self.feed, "step") or recorded_words.cannot_record(self.feed.session, replay=self.feed.replay)
        reason = reason or self.feed.save_history(lambda news: self._say(history_line(news)))
        if reason is not None:
            self._say(reason)

    def look(self, device: str) -> None:
        """Gives the tab the steps of a device, and says what is new."""
        session = self.feed.session
        found = session.recorded(device)
        if [id(each) for each in found] != [id(each) for each in self._seen]:
            self._take(found)
        if self._asked_ns is not None:
            self._hear_refusal(session)
        self.pane.hint = self._hint(session)

    def _take(self, found: tuple[RecordedStep, ...]) -> None:
        known = self._made
        keys = [(each.device, each.time_ns) for each in found]
        new = [each for each, key in zip(found, keys) if key not in known]
        self._made = {key: known[key] if key in known else StepTimeline(each) for each, key in zip(found, keys)}
        self._seen = found
        self.pane.set_steps(tuple(self._made.values()))
        if new and not self.feed.replay and new[-1].time_ns + new[-1].duration_ns >= self._begun_ns:
            self._asked_ns = None
            where = "" if self.pane.display else " · 4 shows it"
            self._say(recorded_words.arrived_line(self._made[keys[-1]]) + where)

    def _hear_refusal(self, session: Session) -> None:
        for event in reversed(session.events):
            if self._asked_ns is None or event.time_ns < self._asked_ns:
                return
            if event.name == "record_refused":
                self._asked_ns = None
                self._say(event_text(event))

    def _hint(self, session: Session) -> tuple[str, str]:
        """What the empty tab says: how to get a step, or why there is none to get."""
        never = absent(self.feed, "step")
        if never:
            return roles.TEXT, never
        reason = recorded_words.cannot_record(session, replay=self.feed.replay)
        if self.feed.replay:
            return roles.TEXT, "no step was recorded until now in this recording"
        if reason is not None:
            return roles.WARNING, reason
        if self._asked_ns is not None:
            waited = units.duration((self.feed.now_ns() - self._asked_ns) // 1_000_000_000 * 1_000_000_000)
            return roles.TITLE, f"recording: asked for {waited} ago, and here when the step has ended"
        return roles.TEXT, "d records the next step"
