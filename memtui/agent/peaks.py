"""The peak of each step, from a counter that only remembers the peak since its last reset."""

from __future__ import annotations

from collections import deque
from typing import Optional


class StepPeaks:
    """One device's peak in the step under way and in the last one.

    Exact where the lifetime counter rose within the step, for then it rose to the step's own peak; else the largest
    allocation that was seen, a lower bound. Of a step whose beginning was not read only what rose since is its own, and
    only that makes it the last one: `last_step` says which that is.
    """

    def __init__(self, *, late: bool = False) -> None:
        """`late` says that the program ran before: nothing that is counted by then is of a step."""
        self.last_bytes: Optional[int] = None
        self.last_exact = False
        self.last_phase: Optional[str] = None
        self.last_step: Optional[int] = None
        self.phase: Optional[str] = None
        self._step = -1 if late else 0  # steps completed before the one under way
        self._begun = True  # its beginning was read
        self._seen = 0
        self._counter = -1
        self._start = -1
        self._spoiled = False  # the program reset the counter in mid-step: what was before is gone

    def sample(
        self,
        allocated_bytes: int,
        peak_bytes: Optional[int],
        phase: Optional[str],
        *,
        working: bool,
        step: Optional[int] = None,
    ) -> None:
        """Notes counters; `working` tells that the step has begun its forward, `step` how many are completed (None: as
        many as before).

        `phase` is the one in which all since the last reading happened, None where there were several.
        """
        if step is not None and step != self._step:
            # What was reached until now may have been reached in the steps before.
            self._step, self._begun, self._spoiled, self.phase = step, False, False, None
            self._seen, self._start = allocated_bytes, -1 if peak_bytes is None else peak_bytes
            self._counter = self._start
            return
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
        self._step += 1
        if self._begun or self.exact:
            self.last_bytes, self.last_exact, self.last_phase = self.current_bytes, self.exact, self.phase
            self.last_step = self._step
        self._begun = True
        self._start, self._seen, self._spoiled, self.phase = self._counter, allocated_bytes, False, None


#: (bytes, step, phase).
HighestStep = tuple[Optional[int], Optional[int], Optional[str]]
NO_STEP: HighestStep = (None, None, None)


class TakenPeaks:
    """One device's peak in each step, where the counter is taken and reset at every step's end: all of them exact.

    `whole` says that the counter holds nothing older than the first step that is seen to end.
    """

    def __init__(self, *, whole: bool) -> None:
        self.last_bytes: Optional[int] = None
        self.last_exact = False
        self.last_phase: Optional[str] = None
        self.last_step: Optional[int] = None
        self.phase: Optional[str] = None
        #: (bytes, step, phase) of steps that have ended and were not told yet; the agent's thread takes them out.
        self.closed: deque[tuple[int, int, Optional[str]]] = deque(maxlen=1 << 12)
        self.steps = 0  # that have been closed
        self.exact = whole
        self._counter = -1  # the highest that was read in the step under way
        self._carried: Optional[int] = None  # the highest that was taken in it

    def sample(
        self, allocated_bytes: int, counter_bytes: Optional[int], phase: Optional[str], *, working: bool
    ) -> None:
        """Notes counters; `counter_bytes` is the peak since the last reset, `phase` as for StepPeaks."""
        seen = counter_bytes if self.exact and counter_bytes is not None else allocated_bytes
        if seen > self.current_bytes:
            self._counter, self.phase = seen, phase

    @property
    def current_bytes(self) -> int:
        """The step's peak so far."""
        return max(self._counter, self._carried or 0)

    def carry(self, taken_bytes: int) -> None:
        """This was reached since the counter was last taken; the step may not be over."""
        if not self.exact:
            taken_bytes = 0  # it may be older than the step
        elif taken_bytes > self.current_bytes:
            self.phase = None
        self._carried = max(taken_bytes, self._carried or 0)

    def close(self, step: int) -> None:
        """Step number `step` is over, and what it reached has been taken."""
        if self._carried is None:
            return
        self.last_bytes, self.last_exact, self.last_phase = self.current_bytes, self.exact, self.phase
        self.last_step = step
        if self.exact:
            self.closed.append((self.current_bytes, step, self.phase))
        self.exact, self.phase, self._counter, self._carried = True, None, -1, None
        self.steps += 1

    def end_step(self, allocated_bytes: int) -> None:
        """A step that is read has been closed: what is allocated now was reached in none of the next one's phases."""
        self.phase = None

    def highest(self) -> HighestStep:
        """(bytes, step, phase) of the highest step that has ended since this was asked last; Nones where none has."""
        highest = NO_STEP
        while self.closed:
            ended = self.closed.popleft()
            if highest[0] is None or ended[0] > highest[0]:
                highest = ended
        return highest
