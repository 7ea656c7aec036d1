"""What happens on the training's own thread: boundaries are noted, and within a budget counters and blocks are read."""

from __future__ import annotations

import _thread
import os
import re
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from ..wire.frames import Event
from .inventory import Inventory
from .looks import Look, Looks
from .phases import Phases
from .readings import Reading, Readings
from .roots import WatchedHooks

if TYPE_CHECKING:
    from .dormant import Sentry

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
        self.inventory = Inventory(torch, self.events)
        self._wake = wake
        self._dead = False
        self._unloading = False
        self._handles: list[Any] = []
        self._remove_backward: Any = None
        self._ends: deque[int] = deque()
        self._untraced = _Untraced(self)
        self._set_eval_frame: Any = getattr(self._untraced.evaluation, "set_eval_frame", _no_eval_frame)
        self._compiling = _tracing_test(torch)
        self._begin()

    def _begin(self) -> None:
        now = time.monotonic_ns()
        lock = threading.Lock()  # held while devices and blocks are read, by either thread
        self.phases = Phases(now)
        self.readings = Readings(self.torch, lock, now)
        self.looks = Looks(self.torch, self.inventory, self.readings, lock, now)
        self._thread: Optional[int] = None
        self._sampling = True
        self.awake = False  # set once the agent's thread runs

    # -- putting in place and taking away ---------------------------------

    def install(self, sentry: Sentry) -> None:
        """Takes over from the sentry: what it knows, and what it has put in place."""
        self.inventory.roots, self._ends = sentry.roots, sentry.ends
        self._handles, self._remove_backward = sentry.handles, sentry.remove_backward
        WatchedHooks.noted = self._forward
        sentry.take_over(self.optimizer_started, self.optimizer_ended, self.backward_started)

    def unload(self) -> None:
        """Stops watching: at once nothing is noted any more, and the training's thread takes the hooks out."""
        self._dead = self._unloading = True

    def forked(self) -> None:
        """In a forked child: what belongs to the parent's thread and time is forgotten; the hooks stay."""
        self.samples.clear()
        self.events.clear()
        self._ends.clear()
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

    def parameter(self, module: Any) -> None:
        """A parameter is being registered on `module`."""
        if not self._dead:
            with self._untraced:
                self.inventory.roots.parameter(module)

    def child(self, parent: Any, child: Any) -> None:
        """`child` is being registered as a submodule of `parent`."""
        if not self._dead:
            with self._untraced:
                self.inventory.roots.child(parent, child)

    # What follows runs at every step, when the training has just emptied the processor's caches: each further Python
    # function then costs some 4 µs, so what is short and usual is written out.

    def _forward(self) -> None:
        if not self._dead and not self._compiling() and (_thread.get_ident() == self._thread or self._mine()):
            self.boundary("forward_start")

    def backward_started(self) -> bool:
        """A backward pass begins; whether its end is wanted."""
        if self._dead or (_thread.get_ident() != self._thread and not self._mine()):
            return False
        self.boundary("backward_start")
        return True

    def optimizer_started(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """An optimizer's step begins."""
        if not self._dead and not self._compiling() and (_thread.get_ident() == self._thread or self._mine()):
            self.boundary("optimizer_start", optimizer)

    def optimizer_ended(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """An optimizer's step has ended, without an exception."""
        if self._compiling() or (_thread.get_ident() != self._thread and not self._mine()):
            return
        if not self._dead:
            self.boundary("optimizer_end", optimizer)
        elif self._unloading:
            with self._untraced:
                self._take_out()

    # -- boundaries ----------------------------------------------------------

    def boundary(self, kind: str, optimizer: Any = None) -> None:
        """A boundary was reached; reads what the budget allows. Raises nothing of the agent's own."""
        # As _Untraced does, without its functions.
        callback = self._set_eval_frame(None) if "torch._dynamo" in sys.modules else _NOT_TRACED
        try:
            key, inventory, phases = 0, self.inventory, self.phases
            if optimizer is not None:
                key = id(optimizer)
                if kind == "optimizer_end":
                    inventory.steps[key] = inventory.steps.get(key, 0) + 1
                elif key not in inventory.references or inventory.references[key]() is not optimizer:
                    inventory.meet(optimizer)
            backward = self._settle() if self._ends else False
            now = time.monotonic_ns()
            finished = phases.boundary(kind, now, key)
            if finished is None:
                return
            if not self.awake:
                self._wake()
            if phases.trains and not inventory.scanned:
                inventory.discover(phases, now)
            if self._sampling:
                self._sample(kind, now, "backward" if backward else phases.ended, finished)
            if finished and (self._sampling or now >= self.readings.due_ns):
                self._plan()
        except Exception as error:  # no error of the agent's reaches the program
            if not _own(error):
                raise
            self.fail(error)
        finally:
            if callback is not _NOT_TRACED:
                self._set_eval_frame(callback)

    def _settle(self) -> bool:
        """Takes in the ends of backward passes since the last boundary, which were only noted when they came.

        True where there were any: what happened since the last boundary happened in backward, for the most part.
        """
        ended = bool(self._ends)
        while self._ends:
            finished = self.phases.boundary("backward_end", self._ends.popleft())
            if finished:
                self.readings.end_step()
                self._plan()
        return ended

    def place(self) -> tuple[str, int]:
        """The phase and since when, from the agent's thread: also where the end of backward is not taken in yet."""
        phases = self.phases
        ends = list(self._ends)
        if ends and phases.phase == "backward" and len(ends) >= phases.depth:
            return "between", ends[-1]
        return phases.phase, phases.since_ns

    def fail(self, error: Exception) -> None:
        """Goes quiet after an error of the agent's own."""
        self._dead = self._unloading = True
        self.error = f"{type(error).__name__}: {error}"
        self._wake()

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

    def _sample(self, kind: str, now: int, ended: str, finished: bool) -> None:
        phases = self.phases
        self.readings.refresh(now)
        working = ended not in ("startup", "between")
        readings = self.readings.at_boundary(ended, working=working, finished=finished)
        # Backward leaves gradients, and little else that outlives it: what is new at the next forward is its input.
        born_in = "between" if kind == "forward_start" and ended == "backward" else ended
        looks = self.looks.at_boundary(kind, phases, now, born_in, finished=finished)
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


class _Untraced:
    """What the agent does on the program's thread: no compiler traces it, and no error of it reaches the program.

    An exception that a signal handler of the program raises while the agent runs is the program's and goes on its way.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._frames: list[Any] = []
        dynamo = getattr(observer.torch._C, "_dynamo", None)
        self.evaluation: Any = getattr(dynamo, "eval_frame", None)
        skip = getattr(self.evaluation, "skip_code", None)
        if skip is not None:
            for function in (
                WatchedHooks.__bool__,
                Observer._forward,
                Observer.optimizer_started,
                Observer.optimizer_ended,
                Observer.parameter,
                Observer.child,
                Observer._mine,
                Observer.backward_started,
                Observer.boundary,
                _Untraced.__enter__,
                _Untraced.__exit__,
            ):
                skip(function.__code__)

    def __enter__(self) -> None:
        # torch.compile looks at every Python frame that runs while its callback is set.
        traces = "torch._dynamo" in sys.modules and self.evaluation is not None
        self._frames.append(self.evaluation.set_eval_frame(None) if traces else _NOT_TRACED)

    def __exit__(self, kind: Any, error: Optional[BaseException], _trace: Any) -> bool:
        callback = self._frames.pop()
        if callback is not _NOT_TRACED:
            self.evaluation.set_eval_frame(callback)
        if error is None or not isinstance(error, Exception) or not _own(error):
            return False
        self._observer.fail(error)
        return True


_NOT_TRACED = object()


def _no_eval_frame(_callback: Any) -> Any:
    return _NOT_TRACED


def _tracing_test(torch: Any) -> Any:
    """What torch.compile takes for True while it traces: there is nothing to note, and noting would become part of
    the graph. The shorter of two where there are two.
    """
    version = tuple(int(part) for part in re.findall(r"\d+", str(torch.__version__))[:2])
    if version >= (2, 4):
        return torch.compiler.is_dynamo_compiling
    return torch.compiler.is_compiling if version >= (2, 3) else torch._utils.is_compiling


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
