"""Counters of the devices in use, each step's peak with them, and how often a step may be read."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Optional

from .budget import Budget
from .counters import Backends, Figures
from .peaks import StepPeaks
from .phases import Phases

#: At most this share of the training's time goes into counters at boundaries, and into sending what they say.
_SHARE, _BURST_NS = 0.0015, 5_000_000
#: Steps are read at their boundaries no oftener than this; more would be thrown away by the eye.
_SPACING_NS = 250_000_000
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


class Readings:
    """Reads counters, on either thread; `lock` is shared with whatever else looks at the devices."""

    def __init__(self, torch: Any, lock: threading.Lock, now_ns: int) -> None:
        self.devices: list[Any] = []
        self._lock = lock
        self._backends = Backends(torch)
        self._peaks: dict[str, StepPeaks] = {}
        self._budget = Budget(_SHARE, _BURST_NS, now_ns)
        self._cost_ns = 0.0
        self.due_ns = 0  # no step is read before
        self._refreshed_ns = 0
        self._looked_ns = 0

    @property
    def on_host(self) -> bool:
        """Whether the process uses no accelerator."""
        return len(self.devices) == 1 and self.devices[0].device == "host"

    def due(self, now_ns: int) -> bool:
        """Whether the step that begins now may be read at its boundaries."""
        if now_ns < self.due_ns or not self._budget.allows(self._cost_ns, now_ns):
            return False
        self.due_ns = now_ns + _SPACING_NS
        return True

    def refresh(self, now_ns: int, *, at_once: bool = False) -> None:
        """Finds devices that are newly in use, once a second; not while somebody else looks."""
        if (self.devices and now_ns - self._refreshed_ns < _REFRESH_NS and not at_once) or not self._lock.acquire(
            blocking=False
        ):
            return
        try:
            self._refreshed_ns = now_ns
            devices = self._backends.refresh()
            for counters in devices:
                self._peaks.setdefault(counters.device, StepPeaks())
            self.devices = devices
        finally:
            self._lock.release()

    def phase_since(self, phases: Phases, now_ns: int) -> Optional[str]:
        """The phase of all that happened since counters were last read, None where it has changed since."""
        last, self._looked_ns = self._looked_ns, now_ns
        return phases.phase if phases.since_ns <= last else None

    def read(self, counters: Any, phase: Optional[str], *, working: bool) -> Reading:
        """One device's counters now; `phase` as in StepPeaks.sample."""
        figures = counters.read()
        peaks = self._peaks[counters.device]
        allocated = figures.get("allocated_bytes")
        if allocated is not None:
            peaks.sample(allocated, figures.get("allocated_peak_bytes"), phase, working=working)
        return _reading(counters.device, figures, peaks)

    def at_boundary(self, phase: str, *, working: bool, finished: bool) -> list[Reading]:
        """All devices at a boundary that ended `phase`, and the step where it is `finished`."""
        begun = time.perf_counter_ns()
        self._looked_ns = time.monotonic_ns()
        readings = [self.read(counters, phase, working=working) for counters in self.devices]
        if finished:
            readings = [self._end_step(reading) for reading in readings]
        spent = time.perf_counter_ns() - begun
        self._cost_ns = _BOUNDARIES_A_STEP * spent if not self._cost_ns else 0.7 * self._cost_ns + 1.8 * spent
        self._budget.spend(spent)
        return readings

    def spend(self, cost_ns: int) -> None:
        """The agent's thread has spent this on what was read at boundaries."""
        self._budget.spend(cost_ns)

    def end_step(self) -> None:
        """The program says that its step is over."""
        for counters in self.devices:
            self._end_step(self.read(counters, None, working=True))

    def _end_step(self, reading: Reading) -> Reading:
        peaks = self._peaks[reading.device]
        peaks.end_step(reading.figures.get("allocated_bytes") or 0)
        return _reading(reading.device, reading.figures, peaks)


def _reading(device: str, figures: Figures, peaks: StepPeaks) -> Reading:
    known = figures.get("allocated_bytes") is not None
    return Reading(
        device=device,
        figures=figures,
        step_peak_bytes=peaks.current_bytes if known else None,
        step_peak_exact=peaks.exact,
        last_step_peak_bytes=peaks.last_bytes,
        last_step_peak_exact=peaks.last_exact,
        last_step_peak_phase=peaks.last_phase,
    )
