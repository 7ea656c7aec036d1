"""What is noted of a program while it is tried out, and when enough was seen of it."""

from __future__ import annotations

from typing import Optional

from memtui.analysis.recorded import StepTimeline
from memtui.session.session import Session
from memtui.session.steps import StepPeak, step_number
from memtui.wire.frames import Event, RecordedStep

from .trial import Activations, Composition, OutOfMemory

#: A run is steady where this many steps in a row, the first two not counted, reached no new peak.
_STEADY_STEPS, _FIRST_STEPS = 3, 2
#: How many more are waited for where a step is to be recorded and was not.
_RECORDED_BY = 12
#: Never more steps than this, however they grow; where the peak rose in half of so many last ones, it rises on.
_MOST_STEPS, _LAST_STEPS = 60, 20


class Watch:
    """Peaks of every device, from a session that is looked at after each message."""

    def __init__(self, steps: Optional[int] = None) -> None:
        self._steps = steps
        self.allocated: dict[str, int] = {}
        self.reserved: dict[str, int] = {}
        self.retries: dict[str, int] = {}
        self._raised_at = 0  # the step under way when a peak was reached last
        self._rises: set[int] = set()  # all such steps

    def look(self, session: Session) -> None:
        """Takes in the newest frame."""
        frame = session.frame
        if frame is None:
            return
        for device in frame.devices:
            if device.device == "host":
                continue
            rose = _raise(self.allocated, device.device, device.allocated_peak_bytes)
            rose |= _raise(self.reserved, device.device, device.reserved_peak_bytes)
            _raise(self.retries, device.device, device.num_alloc_retries)
            if rose:
                self._raised_at = frame.step
                self._rises.add(frame.step)

    def enough(self, session: Session) -> str:
        """Why nothing more is to be seen: "steps", "steady", "rising"; empty as long as there is."""
        completed = 0 if session.frame is None else session.frame.step
        if self._steps is not None:
            return "steps" if completed >= self._steps else ""
        if completed >= _MOST_STEPS:
            last = sum(step > completed - _LAST_STEPS for step in self._rises)
            return "rising" if 2 * last >= _LAST_STEPS else "steps"
        quiet = completed - max(self._raised_at, _FIRST_STEPS)
        told = any(map(session.recorded, self.allocated)) or any(e.name == "record_refused" for e in session.events)
        return "steady" if quiet >= _STEADY_STEPS and (told or completed >= _RECORDED_BY) else ""


def _raise(held: dict[str, int], device: str, value: Optional[int]) -> bool:
    if value is None or value <= held.get(device, -1):
        return False
    held[device] = value
    return True


def step_peaks(session: Session, device: str) -> tuple[StepPeak, ...]:
    """The peak of every completed step, the oldest first."""
    peaks = (step.peak(device) for step in session.steps.recent)
    return tuple(peak for peak in peaks if peak is not None)


def composition(session: Session, device: str, peak: Optional[StepPeak]) -> Optional[Composition]:
    """What the highest step consisted of: of a recorded step at its peak's instant, else at the nearest boundary."""
    recorded = session.recorded(device)
    if recorded:
        best = max((_recorded(step) for step in recorded), key=lambda each: each.allocated_bytes)
        if peak is None or best.allocated_bytes >= 0.99 * peak.bytes_held:
            return best
    looks = session.looks(device)
    if not looks:
        return None
    found, _ = max(looks, key=lambda look: look[0].allocated_bytes)
    categories = {name: size for name, size in found.categories.items() if size}
    return Composition(step_number(found.step), found.phase, found.allocated_bytes, categories, at_peak=False)


def _recorded(step: RecordedStep) -> Composition:
    timeline = StepTimeline(step)
    bytes_by_category = timeline.composition(timeline.peak)
    categories = {name: size for name, size in zip(timeline.categories, bytes_by_category) if size}
    return Composition(
        step_number(step.step), timeline.phase(timeline.peak), timeline.totals[timeline.peak], categories, at_peak=True
    )


def activations(session: Session, device: str) -> Optional[Activations]:
    """Of a recorded step; None where it is not known how much is of how many tokens or samples."""
    for step in session.recorded(device):
        kept = StepTimeline(step).kept_for_backward
        # By the time: an event's step may lag, and batches may differ from step to step.
        end_ns = step.time_ns + step.duration_ns
        told = [event for event in session.events if event.name == "forward_input" and event.time_ns <= end_ns]
        figures = told[-1].figures if told else {}
        for unit in ("token", "sample"):
            count = figures.get(f"{unit}s")
            if kept and count:
                return Activations(kept, unit, count, told[-1].text)
    return None


def host_parameters(session: Session) -> tuple[Optional[int], Optional[int]]:
    """Bytes of parameters that were built on the host, and how many keep their values; None where all do."""
    latest = next((event for event in reversed(session.events) if event.name == "host_parameters"), None)
    return (None, None) if latest is None else (latest.figures["parameter_bytes"], latest.figures["limit_bytes"])


def out_of_memory(session: Session, device: str) -> Optional[OutOfMemory]:
    """The first allocation of a device that torch gave up."""
    event: Optional[Event] = next(
        (event for event in session.events if event.name == "oom" and event.device == device), None
    )
    if event is None:
        return None
    figures = event.figures
    return OutOfMemory(
        step=step_number(event.step),
        phase=event.phase,
        asked_bytes=figures.get("asked_bytes"),
        allocated_bytes=figures.get("allocated_bytes"),
        reserved_bytes=figures.get("reserved_bytes"),
        device_free_bytes=figures.get("device_free_bytes"),
    )
