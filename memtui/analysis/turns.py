"""Verdicts that turn: an event when what fitted does not, or fits again."""

from __future__ import annotations

from typing import NamedTuple, Optional

from memtui.session.session import Session
from memtui.wire.frames import Event

from .events import ANSWERS, TURNED, latest_of
from .forecast import build_forecast
from .fragmentation import find_holes
from .ladder import build_ladder
from .policy import Policy
from .verdict import Fit, fit

#: A verdict is looked at no more often.
_EVERY_NS = 500_000_000


class _State(NamedTuple):
    """What was told last, and the other answer that there is now, if there is one, and since when."""

    told: int = 0
    back: int = 0  # how often it was told to be better
    other: Optional[int] = None
    since_ns: int = 0


class Turns:
    """Tells when a device's verdict has turned, and stayed so for a while; `due` is cheap but for twice a second."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._states: dict[tuple[Optional[int], str], _State] = {}
        self._looked_ns = 0

    def due(self, session: Session) -> list[Event]:
        """Events of the verdicts that have turned since this was asked last."""
        frame = session.frame
        if frame is None or session.end is not None or 0 <= frame.time_ns - self._looked_ns < _EVERY_NS:
            return []
        self._looked_ns = frame.time_ns
        found = (self._of(session, device.device, frame.time_ns) for device in session.devices)
        return [event for event in found if event is not None]

    def _of(self, session: Session, device: str, now_ns: int) -> Optional[Event]:
        ladder = build_ladder(session, device, now_ns, self._policy)
        judged = fit(ladder, build_forecast(session, device, ladder), find_holes(session, device), self._policy)
        if not judged.answer or session.device_frame(device) is None:
            return None
        key, now = (session.pid, device), ANSWERS.index(judged.answer)
        state = self._states.get(key) or _begun(session, device)
        if now == state.told:
            self._states[key] = state._replace(other=None)
            return None
        if now != state.other:
            state = state._replace(other=now, since_ns=now_ns)
        worse = now > state.told
        held_ns = self._policy.turn_worse_ns if worse else self._policy.turn_better_ns << state.back
        if now_ns - state.since_ns < held_ns:
            self._states[key] = state
            return None
        self._states[key] = _State(now, state.back + (not worse))
        return _event(session, device, now_ns, state.told, now, judged)


def _begun(session: Session, device: str) -> _State:
    """As it was told already: to a log, or before a reconnection."""
    latest = latest_of(TURNED, session, device)
    return _State() if latest is None else _State(latest.figures.get("answer", 0))


def _event(session: Session, device: str, now_ns: int, before: int, now: int, judged: Fit) -> Event:
    frame = session.frame
    step, phase = (0, "") if frame is None else (frame.step, frame.phase)
    return Event(TURNED, now_ns, step, phase, device, {"answer": now, "before": before}, judged.text)
