"""Counters of the devices in use, each step's peak with them, and how often a step may be read."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Union

from .budget import Budget
from .counters import Backends, Figures
from .peaks import NO_STEP, HighestStep, StepPeaks, TakenPeaks
from .phases import Phases

if TYPE_CHECKING:
    from .exact import ExactPeaks, Taken

#: At most this share of the training's time goes into counters at boundaries, and into sending what they say.
_SHARE, _BURST_NS = 0.0008, 5_000_000
#: Steps are read at their boundaries no oftener than this; more would be thrown away by the eye.
SPACING_NS = 500_000_000
_REFRESH_NS = 1_000_000_000
_BOUNDARIES_A_STEP = 6


@dataclass
class Reading:
    """One device's counters at an instant, and the peaks of the step under way and of the last one."""

    device: str
    figures: Figures
    step_peak_bytes: Optional[int]
    step_peak_exact: bool
    last_step_peak_bytes: Optional[int]
    last_step_peak_exact: bool
    last_step_peak_phase: Optional[str]
    last_step_peak_step: Optional[int]


class Readings:
    """Reads counters, on either thread; `lock` is shared with whatever else looks at the devices.

    With `exact`, peaks of CUDA's caching allocator are taken at each step's end.
    """

    def __init__(self, torch: Any, lock: threading.Lock, now_ns: int, exact: Optional[ExactPeaks] = None) -> None:
        self.devices: list[Any] = []
        self._lock = lock
        self._backends = Backends(torch)
        self._exact = exact
        self.late = False  # the program ran before anything was read
        self._peaks: dict[str, Union[StepPeaks, TakenPeaks]] = {}
        self._taken: dict[int, TakenPeaks] = {}  # by the device's index
        self._budget = Budget(_SHARE, _BURST_NS, now_ns)
        self._cost_ns = 0.0
        self.due_ns = 0  # no step is read before
        self._refreshed_ns = 0
        self._looked_ns = 0
        self._fresh: set[str] = set()  # found since they were read last
        self._doing: Optional[str] = None  # seen on the training's stack at the latest reading

    @property
    def on_host(self) -> bool:
        """Whether the process uses no accelerator."""
        return len(self.devices) == 1 and self.devices[0].device == "host"

    @property
    def settled(self) -> bool:
        """Whether the devices are known; not before one that has been initialised is also used."""
        devices = self.devices
        return bool(devices) and not (devices[0].device == "host" and self._backends.initialized)

    def due(self, now_ns: int) -> bool:
        """Whether the step that begins now may be read at its boundaries."""
        if now_ns < self.due_ns:
            return False
        wait_ns = self._budget.wait_ns(self._cost_ns, now_ns)
        if wait_ns:
            self.due_ns = now_ns + wait_ns
            return False
        self.due_ns = now_ns + SPACING_NS
        return True

    def refresh(self, now_ns: int, *, at_once: bool = False, patience_s: float = 0.0) -> None:
        """Finds devices that are newly in use, once a second; not while somebody else looks for longer than that."""
        if self.devices and now_ns - self._refreshed_ns < _REFRESH_NS and not at_once:
            return
        if not self._lock.acquire(timeout=patience_s):
            return
        try:
            self._refreshed_ns = now_ns
            devices = self._backends.refresh()
            for counters in devices:
                if counters.device not in self._peaks:
                    self._peaks[counters.device] = self._peaks_of(counters)
                    self._fresh.add(counters.device)
            self.devices = devices
        finally:
            self._lock.release()

    def _peaks_of(self, counters: Any) -> Union[StepPeaks, TakenPeaks]:
        if self._exact is None or not getattr(counters, "native", False):
            return StepPeaks(late=self.late)
        counters.take_from(self._exact)
        return self._taken_of(counters.index)

    def _taken_of(self, index: int) -> TakenPeaks:
        peaks = self._taken.get(index)
        if peaks is None:
            assert self._exact is not None
            peaks = self._taken.setdefault(index, TakenPeaks(whole=self._exact.whole))
        return peaks

    @property
    def taken(self) -> bool:
        """Whether peaks of some device are taken at each step's end."""
        return bool(self._taken)

    def exact_notice(self) -> Optional[str]:
        """A line for the user, where exact peaks were asked for."""
        if self._exact is None:
            return None
        if self.taken:
            return (
                "exact peaks: torch's peak counters are reset at each step's end; the program's own readings stay right"
            )
        others = [found.info.counters for found in self.devices if not getattr(found, "native", True)]
        if others:
            return f"no exact peaks: {others[0]} is in use, and they are taken of PyTorch's own caching allocator only"
        return "no exact peaks so far: they are taken of CUDA's caching allocator, which this process has not used"

    def take_from(self, exact: ExactPeaks) -> None:
        """From now on peaks are taken: asked for by a program that runs already."""
        with self._lock:
            self._exact = exact
            self._peaks = {counters.device: self._peaks_of(counters) for counters in self.devices}

    def carry(self, taken: Taken, *, by_program: bool) -> None:
        """Peaks that were taken, or that the program has reset, belong to the step under way."""
        if by_program and self._exact is not None:
            self._exact.settled += 1
        for index, taken_bytes in taken:
            self._taken_of(index).carry(taken_bytes)

    def close(self, step: int) -> None:
        """The step is over, and all its peaks are carried."""
        for peaks in tuple(self._taken.values()):
            peaks.close(step)

    def sample_taken(self, taken: Taken, phase: str) -> None:
        """Peaks that were taken at a boundary that ends `phase`, on a step that is read at all of its boundaries."""
        for index, taken_bytes in taken:
            self._taken_of(index).sample(taken_bytes, taken_bytes, phase, working=True)

    def highest(self, device: str) -> HighestStep:
        """(bytes, step, phase) of the highest step since this was asked last; Nones where peaks are not taken."""
        peaks = self._peaks[device]
        return peaks.highest() if isinstance(peaks, TakenPeaks) else NO_STEP

    def phase_since(self, phases: Phases, now_ns: int, doing: Optional[str] = None) -> Optional[str]:
        """The phase of all that happened since counters were last read, None where it has changed since.

        `doing` is what the training's stack shows now: that goes before the phase.
        """
        last, self._looked_ns = self._looked_ns, now_ns
        before, self._doing = self._doing, doing
        return None if doing != before or phases.since_ns > last else doing or phases.phase

    def read(self, counters: Any, phase: Optional[str], *, working: bool, step: int) -> Reading:
        """One device's counters now; `phase` and `step` as in StepPeaks.sample."""
        peaks = self._peaks[counters.device]
        if counters.device in self._fresh:
            self._fresh.discard(counters.device)
            phase = "startup" if phase == "startup" else None  # what it has counted may be older than this phase
        if isinstance(peaks, TakenPeaks):
            return self._read_taken(counters, peaks, phase, working=working)
        figures = counters.read()
        allocated = figures.get("allocated_bytes")
        if allocated is not None:
            peaks.sample(allocated, figures.get("allocated_peak_bytes"), phase, working=working, step=step)
        return _reading(counters.device, figures, peaks)

    def _read_taken(self, counters: Any, peaks: TakenPeaks, phase: Optional[str], *, working: bool) -> Reading:
        steps = peaks.steps
        figures, counted_bytes = counters.read_counted()
        if peaks.steps == steps:  # else a step has ended meanwhile, and this is of the one before
            peaks.sample(figures["allocated_bytes"], counted_bytes, phase, working=working)
        reading = _reading(counters.device, figures, peaks)
        if self._exact is not None and self._exact.resets != self._exact.settled:
            reading.step_peak_exact = False  # what the program has just reset is still to be taken in
        return reading

    def at_boundary(self, phase: str, *, working: bool, finished: bool, step: int) -> list[Reading]:
        """All devices at a boundary that ended `phase`, and the step where it is `finished`; `step` are completed."""
        begun = time.thread_time_ns()
        self._looked_ns = time.monotonic_ns()
        # Where something else was seen on the stack, what happened since was not all of the phase.
        only = None if self._doing else phase
        self._doing = None
        before = step - finished
        readings = [self.read(counters, only, working=working, step=before) for counters in self.devices]
        if finished:
            readings = [self._end_step(reading) for reading in readings]
        spent = time.thread_time_ns() - begun
        self._cost_ns = _BOUNDARIES_A_STEP * spent if not self._cost_ns else 0.7 * self._cost_ns + 1.8 * spent
        self._budget.spend(spent)
        return readings

    def catch_up(self, phases: Phases, *, at_end: bool) -> None:
        """Before boundaries are read again after some that were not; `at_end` of a step.

        What happened since the last reading is of the phase under way only if that had begun by then, and of steps
        that have ended where the next one begins just now.
        """
        begun, now_ns = time.thread_time_ns(), time.monotonic_ns()
        alone = not (at_end or self._doing or phases.since_ns > self._looked_ns)
        self._looked_ns, self._doing = now_ns, None
        working = phases.phase not in ("startup", "between")
        for counters in self.devices:
            only = phases.phase if alone else None
            reading = self.read(counters, only, working=working, step=phases.step - at_end)
            if at_end:
                self._end_step(reading)
        self._budget.spend(time.thread_time_ns() - begun)

    def peak_phase(self, device: str) -> Optional[str]:
        """In which phase the step under way has reached its peak so far."""
        return self._peaks[device].phase

    def spend(self, cost_ns: int) -> None:
        """The agent's thread has spent this on what was read at boundaries."""
        self._budget.spend(cost_ns)

    def end_step(self, step: int) -> None:
        """A step is over, that with the number `step`."""
        for counters in self.devices:
            self._end_step(self.read(counters, None, working=True, step=step - 1))

    def _end_step(self, reading: Reading) -> Reading:
        peaks = self._peaks[reading.device]
        peaks.end_step(reading.figures.get("allocated_bytes") or 0)
        return _reading(reading.device, reading.figures, peaks)


def _reading(device: str, figures: Figures, peaks: Union[StepPeaks, TakenPeaks]) -> Reading:
    known = figures.get("allocated_bytes") is not None
    return Reading(
        device=device,
        figures=figures,
        step_peak_bytes=peaks.current_bytes if known else None,
        step_peak_exact=peaks.exact,
        last_step_peak_bytes=peaks.last_bytes,
        last_step_peak_exact=peaks.last_exact,
        last_step_peak_phase=peaks.last_phase,
        last_step_peak_step=peaks.last_step,
    )
