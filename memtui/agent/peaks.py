"""The peak of each step, from a counter that only remembers the peak since its last reset."""

from __future__ import annotations

from typing import Optional


class StepPeaks:
    """One device's peak in the step under way and in the last one.

    Exact where the lifetime counter rose within the step, for then it rose to the step's own peak; else the largest
    allocation that was seen, a lower bound.
    """

    def __init__(self) -> None:
        self.last_bytes: Optional[int] = None
        self.last_exact = False
        self.last_phase: Optional[str] = None
        self.phase: Optional[str] = None
        self._seen = 0
        self._counter = -1
        self._start = -1
        self._spoiled = False  # the program reset the counter in mid-step: what was before is gone

    def sample(self, allocated_bytes: int, peak_bytes: Optional[int], phase: Optional[str], *, working: bool) -> None:
        """Notes counters; `working` tells that the step has begun its forward.

        `phase` is the one in which all since the last reading happened, None where there were several.
        """
        if peak_bytes is None:
            if allocated_bytes > self._seen:
                self._seen, self.phase = allocated_bytes, phase
            return
        if peak_bytes < self._counter:
            self._spoiled = working
            self._start = -1
        elif peak_bytes > self._counter:
            self.phase = phase
        self._counter = peak_bytes
        if allocated_bytes > self._seen:
            self._seen = allocated_bytes
            if peak_bytes <= self._start:
                self.phase = phase

    @property
    def exact(self) -> bool:
        """Whether `current_bytes` is the peak and not a lower bound."""
        return self._counter > self._start and not self._spoiled

    @property
    def current_bytes(self) -> int:
        """The step's peak so far."""
        return max(self._counter, self._seen) if self._counter > self._start else self._seen

    def end_step(self, allocated_bytes: int) -> None:
        """The step is over: what it had becomes the last one's; the next begins with what is allocated now."""
        self.last_bytes, self.last_exact, self.last_phase = self.current_bytes, self.exact, self.phase
        self._start, self._seen, self._spoiled, self.phase = self._counter, allocated_bytes, False, None
