"""What each training step took: its time, and its peak on each device."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Optional

#: Steps kept one by one; the highest peaks are kept for the whole run.
STEPS_KEPT = 4096


def step_number(completed: int) -> int:
    """The number of the step under way when so many are completed: the first is step 1.

    Frames, events, looks and recorded steps say how many were completed; every text says this number.
    """
    return completed + 1


@dataclass(frozen=True)
class StepPeak:
    """The most that was allocated on one device in one step; `step` is its number."""

    device: str
    step: int
    bytes_held: int
    exact: bool  # else at least this much
    phase: Optional[str] = None


@dataclass(frozen=True)
class Step:
    """A completed step; `duration_ns` is None for one that began before anybody looked."""

    number: int
    end_ns: int
    duration_ns: Optional[int]
    peaks: tuple[StepPeak, ...]

    @property
    def start_ns(self) -> int | None:
        """When it began, where that is known."""
        return None if self.duration_ns is None else self.end_ns - self.duration_ns

    def peak(self, device: str) -> StepPeak | None:
        """Its peak on `device`, if known."""
        return next((peak for peak in self.peaks if peak.device == device), None)


class StepHistory:
    """The last steps, the highest peak ever, and the highest of the steps with optimizer state in memory."""

    def __init__(self, kept: int = STEPS_KEPT) -> None:
        self.recent: deque[Step] = deque(maxlen=kept)
        self.first: Step | None = None
        self._highest: dict[str, StepPeak] = {}
        self._steady: dict[str, StepPeak] = {}
        self._state_since_ns: int | None = None
        self._short: deque[tuple[int | None, StepPeak]] = deque(maxlen=kept)

    def add(self, step: Step) -> None:
        """Adds a completed step; O(devices). One that is known already is told better now."""
        if self.recent and step.number == self.recent[-1].number:
            step = _together(self.recent.pop(), step)
            if self.first is not None and self.first.number == step.number:
                self.first = step
        self.recent.append(step)
        if self.first is None:
            self.first = step
        for peak in step.peaks:
            _raise(self._highest, peak)
            if self._is_steady(step):
                _raise(self._steady, peak)

    def add_highest(self, peak: StepPeak, since_ns: int | None) -> None:
        """Adds the highest of several steps that ended together, the first of which began at `since_ns`, if known."""
        self._short.append((since_ns, peak))
        _raise(self._highest, peak)
        if self._has_state(since_ns):
            _raise(self._steady, peak)

    def optimizer_state_since(self, time_ns: int) -> None:
        """Says since when optimizer state has been in memory, so that steps before it are told apart."""
        if self._state_since_ns is not None and time_ns >= self._state_since_ns:
            return
        self._state_since_ns = time_ns
        self._steady.clear()
        for step in self.recent:
            if self._is_steady(step):
                for peak in step.peaks:
                    _raise(self._steady, peak)
        for since_ns, peak in self._short:
            if self._has_state(since_ns):
                _raise(self._steady, peak)

    @property
    def state_since_ns(self) -> int | None:
        """Since when optimizer state has been in memory; None while none was seen."""
        return self._state_since_ns

    def highest(self, device: str) -> StepPeak | None:
        """The highest peak of any completed step on `device`."""
        return self._highest.get(device)

    def steady(self, device: str) -> StepPeak | None:
        """The highest peak of a whole step that began with optimizer state in memory."""
        return self._steady.get(device)

    def last(self) -> Step | None:
        """The newest completed step."""
        return self.recent[-1] if self.recent else None

    def snapshot(self) -> StepHistory:
        """An independent copy."""
        twin = StepHistory()
        twin.recent = self.recent.copy()
        twin.first = self.first
        twin._highest = dict(self._highest)
        twin._steady = dict(self._steady)
        twin._state_since_ns = self._state_since_ns
        twin._short = self._short.copy()
        return twin

    def _is_steady(self, step: Step) -> bool:
        return self._has_state(step.start_ns)

    def _has_state(self, since_ns: int | None) -> bool:
        return self._state_since_ns is not None and since_ns is not None and since_ns >= self._state_since_ns


def _raise(held: dict[str, StepPeak], peak: StepPeak) -> None:
    before = held.get(peak.device)
    if before is None or peak.bytes_held > before.bytes_held:
        held[peak.device] = peak


def _together(before: Step, after: Step) -> Step:
    """One step that was told twice: at a tick just before its last boundary's frame, and by that."""
    peaks = {peak.device: peak for peak in before.peaks}
    for peak in after.peaks:
        known = peaks.get(peak.device)
        if known is None or (peak.exact, peak.bytes_held) >= (known.exact, known.bytes_held):
            peaks[peak.device] = peak
    duration = after.duration_ns if after.duration_ns is not None else before.duration_ns
    return Step(after.number, after.end_ns, duration, tuple(peaks.values()))
