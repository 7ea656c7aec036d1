"""What happens on the training's own thread: boundaries are noted, and within a budget counters and blocks are read."""

from __future__ import annotations

import _thread
import ctypes
import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Optional

from ..wire.frames import Event
from . import backward
from .inventory import Inventory
from .looks import Look, Looks
from .phases import Phases
from .readings import Reading, Readings
from .roots import WatchedHooks

_HERE = os.path.dirname(os.path.abspath(__file__))


@dataclass
class Sample:
    """Everything read at a boundary."""

    time_ns: int
    boundary: str
    step: int
    phase: str
    phase_since_ns: int
    step_since_ns: Optional[int]
    last_step_ns: Optional[int]
    readings: list[Reading]
    looks: dict[str, Look]


class Observer:
    """Watches one process. `wake` starts the agent's thread; samples, events and models are left for it to collect."""

    def __init__(self, torch: Any, wake: Any) -> None:
        self.torch = torch
        self.samples: deque[Sample] = deque(maxlen=256)
        self.events: deque[Event] = deque(maxlen=256)
        self.error: Optional[str] = None
        self.interrupted: Any = None  # an exception of a signal handler that could not be raised where it hit
        self.inventory = Inventory(torch, self.events)
        self._wake = wake
        self._dead = False
        self._unloading = False
        self._handles: list[Any] = []
        self._remove_backward: Any = None
        self._begin()

    def _begin(self) -> None:
        now = time.monotonic_ns()
        lock = threading.Lock()  # held while devices and blocks are read, by either thread
        self.phases = Phases(now)
        self.readings = Readings(self.torch, lock, now)
        self.looks = Looks(self.torch, self.inventory, self.readings, lock, now)
        self._thread: Optional[int] = None
        self._sampling = True

    # -- putting in place and taking away ---------------------------------

    def install(self) -> None:
        """Begins to watch. Called once, on the thread that imports torch."""
        from torch.nn.modules import module as modules
        from torch.optim import optimizer as optimizers

        WatchedHooks.noted = self._forward
        self._remove_backward = backward.watch(self.torch, self._backward_started, self._backward_ended)
        self._handles = [
            modules.register_module_parameter_registration_hook(self._parameter),
            modules.register_module_module_registration_hook(self._child),
            optimizers.register_optimizer_step_pre_hook(self._optimizer_started),
            optimizers.register_optimizer_step_post_hook(self._optimizer_ended),
        ]

    def unload(self) -> None:
        """Stops watching: at once nothing is noted any more, and the training's thread takes the hooks out."""
        self._dead = self._unloading = True

    def forked(self) -> None:
        """In a forked child: what belongs to the parent's thread and time is forgotten; the hooks stay."""
        self.samples.clear()
        self.events.clear()
        self.inventory.forget()
        self._begin()

    def _take_out(self) -> None:
        # On the training's thread, for it may be iterating over these very dictionaries anywhere else.
        self._unloading = False
        WatchedHooks.noted = None
        for handle in self._handles:
            handle.remove()
        self._remove_backward()
        self.inventory.roots.clear()

    # -- what torch calls ---------------------------------------------------

    def _parameter(self, module: Any, _name: str, _parameter: Any) -> None:
        try:
            if not self._dead:
                self.inventory.roots.parameter(module)
        except Exception as error:  # noqa: BLE001 - the program must not meet an error of its monitor
            self._fail(error)

    def _child(self, parent: Any, _name: str, child: Any) -> None:
        try:
            if not self._dead:
                self.inventory.roots.child(parent, child)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _forward(self) -> None:
        if self._dead or self._compiling():
            return
        try:
            self.boundary("forward_start")
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _backward_started(self) -> None:
        if self._dead:
            return
        try:
            self.boundary("backward_start")
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _backward_ended(self) -> None:
        try:
            if self._dead:
                if self._unloading:
                    self._take_out()
                return
            self.boundary("backward_end")
        except BaseException as error:  # noqa: BLE001 - called from a destructor: what is raised here is lost
            self._fail(error, lost=True)

    def _optimizer_started(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._dead or self._compiling():
            return
        try:
            self.inventory.meet(optimizer)
            self.boundary("optimizer_start", optimizer)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _optimizer_ended(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._compiling():
            return
        try:
            if self._dead:
                if self._unloading:
                    self._take_out()
                return
            self.inventory.stepped(optimizer)
            self.boundary("optimizer_end", optimizer)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _compiling(self) -> bool:
        # Inside a traced function there is nothing to note, and noting would become part of the graph.
        return bool(self.torch.compiler.is_compiling())

    def _fail(self, error: BaseException, *, lost: bool = False) -> None:
        """Goes quiet after an error of our own; what a signal handler of the program raised goes on its way."""
        if isinstance(error, KeyboardInterrupt) or not _own(error):
            if not lost:
                raise error
            self.interrupted = type(error)
            self._wake()
            return
        self._dead = self._unloading = True
        self.error = f"{type(error).__name__}: {error}"
        self._wake()

    def deliver(self) -> None:
        """Hands on, from the agent's thread, an exception that hit where none can be raised."""
        kind, self.interrupted = self.interrupted, None
        if kind is KeyboardInterrupt:
            _thread.interrupt_main()
        elif kind is not None:
            main = threading.main_thread().ident
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main or 0), ctypes.py_object(kind))

    # -- boundaries ----------------------------------------------------------

    def boundary(self, kind: str, optimizer: Any = None) -> None:
        """A boundary was reached; reads what the budget allows."""
        if not self._mine():
            return
        now = time.monotonic_ns()
        finished = self.phases.boundary(kind, now, id(optimizer) if optimizer is not None else 0)
        if finished is None:
            return
        self._wake()
        if kind == "backward_end":
            self.inventory.discover(self.phases, now)
        if self._sampling:
            self._sample(kind, now, finished)
        if finished:
            self._plan()

    def step(self) -> None:
        """The program says that a step has ended."""
        self.phases.explicit_step(time.monotonic_ns())
        self.readings.end_step()
        self._plan()

    def _plan(self) -> None:
        """Decides, at a step's end, how closely the next one is looked at."""
        now = time.monotonic_ns()
        self._sampling = self.readings.due(now)
        if self._sampling:
            self.looks.plan(self.phases, now)
        else:
            self.looks.pause()

    def _sample(self, kind: str, now: int, finished: bool) -> None:
        phases = self.phases
        self.readings.refresh(now)
        working = phases.ended not in ("startup", "between")
        readings = self.readings.at_boundary(phases.ended, working=working, finished=finished)
        looks = self.looks.at_boundary(kind, phases, now, finished=finished)
        if looks and finished:
            self.inventory.describe(phases, now)
        self.samples.append(
            Sample(
                time_ns=now,
                boundary=kind,
                step=phases.step,
                phase=phases.phase,
                phase_since_ns=phases.since_ns,
                step_since_ns=phases.step_since_ns,
                last_step_ns=phases.last_step_ns,
                readings=readings,
                looks=looks,
            )
        )

    def _mine(self) -> bool:
        current = _thread.get_ident()
        if current != self._thread:
            # The first thread that trains is the one that is followed, as long as it lives.
            if self._thread is not None and any(t.ident == self._thread for t in threading.enumerate()):
                return False
            self._thread = current
        return True


def _own(error: BaseException) -> bool:
    """Whether an error arose in the agent, and not in a signal handler that ran while the agent did."""
    trace, last = error.__traceback__, None
    while trace is not None:
        last, trace = trace, trace.tb_next
    if last is None:
        return True
    file = last.tb_frame.f_code.co_filename
    # Errors of torch's own functions that the agent called are the agent's fault.
    return file.startswith(_HERE) or f"{os.sep}torch{os.sep}" in file
