"""The line that says how far a plan is, on standard error."""

from __future__ import annotations

import time
from typing import Optional, TextIO

from memtui.analysis import units
from memtui.planning.watch import host_parameters
from memtui.session.session import Session

_PERIOD_SECONDS = 0.5


class PlanLine:
    """One line that is written over, in a terminal; elsewhere a line for each run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._told = ""
        self._warned: set[str] = set()
        self._due = 0.0
        self._shown = False

    def show(self, what: str, step: Optional[int], session: Session) -> None:
        """How far the run `what` is: its step and the most allocated so far."""
        built, _ = host_parameters(session)
        if built is not None and what not in self._warned:
            self._warned.add(what)
            self.clear()
            text = "the model is built on this machine's memory: its initial values are left out from here on"
            print(f"memtui: {text}", file=self._stream, flush=True)
        if not self._terminal:
            if what != self._told:
                self._told = what
                print(f"memtui: running {what}", file=self._stream, flush=True)
            return
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _PERIOD_SECONDS
        device = None if step is None else session.device_frame(session.default_device())
        peak = None if device is None else device.allocated_peak_bytes
        state = "starting" if step is None else f"step {step + 1}, peak {units.size(peak)}"
        self._stream.write(f"\r\x1b[Kmemtui: running {what}: {state}")
        self._stream.flush()
        self._shown = True

    def clear(self) -> None:
        """Takes the line away."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False
