"""Forecasts that were made, held against what then happened: each is told once, when the truth is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Optional

from memtui.session.session import Session
from memtui.session.steps import StepPeak, step_number
from memtui.wire.frames import Event

from .errors import SCORED
from .firststep import after_forward, before_optimizer
from .forecast import build_forecast
from .ladder import Ladder
from .optimizers import missing_state_bytes

#: Steps after the first that have to be over before the peak of those after it is judged.
_LATER_STEPS = 20
#: A forecast from whole steps is made after so many, and judged after as many again; then the next one is made.
_WHOLE_STEPS = 5
_FIRST, _LATER = "first step", "later steps"


class _Made(NamedTuple):
    text: str
    predicted_bytes: int


class _FromSteps(NamedTuple):
    """A forecast from so many whole steps."""

    steps: int
    predicted_bytes: int


class Scorer:
    """Tells what has come true of a session's forecasts; `due` is cheap while no step ends."""

    def __init__(self) -> None:
        self._told: set[tuple[Optional[int], str, str]] = set()
        self._from_steps: dict[tuple[Optional[int], str], _FromSteps] = {}
        self._step = -1

    def due(self, session: Session) -> list[Event]:
        """Events of the forecasts whose truth is there since this was asked last."""
        frame = session.frame
        if frame is None or frame.step == self._step:
            return []
        self._step = frame.step
        held = {(session.pid, event.device or "", event.text) for event in session.events_of(SCORED)}
        self._told |= held
        names = [device.device for device in session.devices]
        return [
            event
            for name in names
            for event in (
                *self._of(session, name),
                *self._of_recorded(session, name),
                *self._of_whole_steps(session, name),
            )
        ]

    def _of(self, session: Session, device: str) -> Iterator[Event]:
        last = session.steps.last()
        first = session.steps.first
        if last is None or first is None or first.number != 1:
            return
        peak = first.peak(device)
        if peak is not None:
            yield from self._scored(
                session.pid, device, _made(session, device, _FIRST), peak, first.end_ns, peak.step - 1
            )
        steady = session.steps.steady(device)
        if steady is None and session.steps.state_since_ns is None:
            steady = session.steps.highest(device)  # its optimizer keeps no state
        if steady is not None and last.number > _LATER_STEPS:
            yield from self._scored(
                session.pid, device, _made(session, device, _LATER), steady, last.end_ns, steady.step - 1
            )

    def _of_recorded(self, session: Session, device: str) -> Iterator[Event]:
        """Of a recorded step that was done again, once enough steps have followed it."""
        found, frame, last = session.steady_step(device), session.device_frame(device), session.steps.last()
        if found is None or frame is None or last is None or last.number <= found.step + 1 + _LATER_STEPS:
            return
        if found.growth_bytes:
            return  # its peak is that of as many steps as were done again
        name = f"step {step_number(found.step):,} done again"
        # Peaks of single steps may be lower bounds; the counters go back to the start of the program.
        for what, predicted, before, actual in (
            ("allocated", found.allocated_bytes, found.allocated_peak_bytes, frame.allocated_peak_bytes),
            ("reserved", found.reserved_bytes, found.reserved_peak_bytes, frame.reserved_peak_bytes),
        ):
            if before is not None and actual is not None:
                made = [_Made(f"peak {what}, {name}", max(predicted, before))]
                peak = StepPeak(device, last.number, actual, True)
                yield from self._scored(session.pid, device, made, peak, last.end_ns, last.number - 1)

    def _of_whole_steps(self, session: Session, device: str) -> Iterator[Event]:
        """Of the peak that was expected after so many steps, once there were as many again."""
        first, last, made = session.steps.first, session.steps.last(), self._from_steps.get((session.pid, device))
        steps = 0 if first is None or last is None else last.number - first.number + 1
        if last is None or steps < (_WHOLE_STEPS if made is None else 2 * made.steps):
            return
        forecast, highest = build_forecast(session, device, Ladder()), session.steps.highest(device)
        optimizers = () if session.model is None else session.model.optimizers
        # What is still to appear may do so at any later step.
        if any(missing_state_bytes(session, optimizer, device) != 0 for optimizer in optimizers):
            return
        if forecast.stage != "whole steps" or not forecast.allocated_bytes or highest is None:
            return
        if made is not None:
            scored = [_Made(f"peak by step {last.number:,}, from whole steps", made.predicted_bytes)]
            actual = StepPeak(device, highest.step, forecast.allocated_bytes, True, highest.phase)
            yield from self._scored(session.pid, device, scored, actual, last.end_ns, last.number - 1)
        self._from_steps[session.pid, device] = _FromSteps(steps, forecast.allocated_bytes)

    def _scored(
        self, pid: Optional[int], device: str, made: list[_Made], actual: StepPeak, time_ns: int, completed: int
    ) -> Iterator[Event]:
        for text, predicted_bytes in made:
            if (pid, device, text) not in self._told:
                self._told.add((pid, device, text))
                figures = {
                    "predicted_bytes": predicted_bytes,
                    "actual_bytes": actual.bytes_held,
                    "actual_exact": int(actual.exact),
                }
                yield Event(SCORED, time_ns, completed, actual.phase or "", device, figures, text)


def _made(session: Session, device: str, what: str) -> list[_Made]:
    """What the first step has foretold of itself, or of those after it."""
    moments = (
        (after_forward(session, device), "the first forward"),
        (before_optimizer(session, device), "the first backward"),
    )
    return [
        _Made(f"{what}, after {moment}", peaks.first_bytes if what == _FIRST else peaks.later_bytes)
        for peaks, moment in moments
        if peaks is not None
    ]
