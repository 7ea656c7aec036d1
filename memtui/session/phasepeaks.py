"""The most that was allocated in each phase, over the whole run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Optional

from memtui.wire.frames import DeviceFrame, Frame

#: Seen on the training's stack: they may have ended any time before the next boundary.
_SEEN_ONLY = ("checkpoint", "compilation")


@dataclass(frozen=True)
class PhasePeak:
    """The most that was allocated on a device in one phase; else than `exact`, at least this much."""

    bytes_held: int
    exact: bool  # nothing higher can have gone unseen
    step: int  # how many were completed then
    time_ns: int


class _Before(NamedTuple):
    """Of the previous frame, what the next one is compared with."""

    sequence: int
    time_ns: int
    step: int
    phase: str
    counter: Optional[int]


class PhasePeaks:
    """One device's peaks by phase, from frames in order; `add` is O(phases).

    What a frame finds allocated is a lower bound of its phase's peak; at a boundary, of the two phases that meet
    there. Where the allocator's own peak counter rose while one phase lasted, its new value is that phase's peak,
    exactly: nothing was ever higher. It is a lower bound again as soon as the counter is above it and the phase may
    have come back, for below its peak the counter does not move.
    """

    def __init__(self) -> None:
        self.by_phase: dict[str, PhasePeak] = {}
        self._before: Optional[_Before] = None
        self._reset = False  # the program has set the counter back: what it had counted is not all known

    def add(self, frame: Frame, device: DeviceFrame) -> None:
        """Takes in one device of a frame."""
        # The host's "peak" is only the highest that was read.
        counter = None if device.device == "host" else device.allocated_peak_bytes
        now = _Before(frame.sequence, frame.time_ns, frame.step, frame.phase, counter)
        before, self._before = self._before, now
        if before is not None and frame.time_ns < before.time_ns:
            # The agent's thread was at a boundary before the training's had told of it.
            self._before, before = before._replace(sequence=frame.sequence), None
        if device.allocated_bytes is None:
            return
        lasted = None if before is None else _lasted(before, frame)
        phases = {frame.phase} if lasted is None else {frame.phase, lasted}
        for phase in phases:
            self._raise(phase, PhasePeak(device.allocated_bytes, False, frame.step, frame.time_ns))
        if counter is None:
            return
        if before is not None and before.counter is not None:
            if counter < before.counter:
                self._reset = True
            elif counter > before.counter and lasted is not None:
                self._raise(lasted, PhasePeak(counter, not self._reset, before.step, frame.time_ns))
        if before is not None and frame.step > before.step:
            self._add_step(frame, device, counter)
        self._doubt(frame.step, phases, counter)

    def _add_step(self, frame: Frame, device: DeviceFrame, counter: int) -> None:
        """The peak of the step that has just ended, whose phase the agent may know better than frames tell."""
        peak, phase = device.last_step_peak_bytes, device.last_step_peak_phase
        if peak is None or phase is None or device.last_step_peak_step not in (None, frame.step):
            return
        exact = device.last_step_peak_exact and not self._reset and peak >= counter
        self._raise(phase, PhasePeak(peak, exact, frame.step - 1, frame.step_since_ns or frame.time_ns))

    def _raise(self, phase: str, peak: PhasePeak) -> None:
        held = self.by_phase.get(phase)
        if held is None or (peak.bytes_held, peak.exact) > (held.bytes_held, held.exact):
            self.by_phase[phase] = peak

    def _doubt(self, step: int, phases: set[str], counter: int) -> None:
        for phase, peak in self.by_phase.items():
            hidden = counter > peak.bytes_held and (step > peak.step or phase in phases)
            if peak.exact and (hidden or self._reset):
                self.by_phase[phase] = replace(peak, exact=False)

    def snapshot(self) -> PhasePeaks:
        """An independent copy."""
        twin = PhasePeaks()
        twin.by_phase, twin._before, twin._reset = dict(self.by_phase), self._before, self._reset
        return twin


def _lasted(before: _Before, frame: Frame) -> Optional[str]:
    """The one phase of all the time since the previous frame; None where there were several, or that is not known."""
    if frame.sequence != before.sequence + 1:
        return None
    if frame.boundary is None:
        return frame.phase if frame.phase == before.phase and frame.phase_since_ns <= before.time_ns else None
    # All boundaries of a step are told, or none.
    ended_step = frame.step_since_ns == frame.time_ns
    same = frame.step == before.step + 1 if ended_step else frame.step == before.step
    return before.phase if same and before.phase not in _SEEN_ONLY else None
