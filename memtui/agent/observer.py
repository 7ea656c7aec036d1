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

from ..wire.frames import Event, Model
from . import backward, discovery
from .blocks import BlockReader, Blocks
from .budget import Budget
from .classify import Births, host_categories
from .counters import Backends, Figures
from .identity import Owned, Walk, describe
from .peaks import StepPeaks
from .phases import Phases
from .roots import Roots, WatchedHooks

#: At most these shares of the training's time: counters at boundaries, and categories. Apart, so that neither
#: starves the other.
_COUNTERS_SHARE, _COUNTERS_BURST_NS = 0.0015, 5_000_000
_LOOKS_SHARE, _LOOKS_BURST_NS = 0.0035, 60_000_000
#: Steps are read at their boundaries no oftener than this; more would be thrown away by the eye.
_SPACING_NS = 250_000_000
_REFRESH_NS = 1_000_000_000
_HERE = os.path.dirname(os.path.abspath(__file__))
#: cuBLAS's default workspace on compute capability 8; torch 2.14 and later tell the size themselves.
_WORKSPACES = frozenset({8_519_680})


@dataclass
class Reading:
    """One device at a boundary or at a tick, before it becomes a frame."""

    device: str
    figures: Figures
    step_peak: tuple[int, bool, Optional[int], bool, Optional[str]]


@dataclass
class Look:
    """Categories and blocks of one device at one instant."""

    time_ns: int
    phase: str
    step: int
    categories: dict[str, int]
    blocks: Optional[Blocks]


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
        now = time.monotonic_ns()
        self.torch = torch
        self.phases = Phases(now)
        self.roots = Roots()
        self.samples: deque[Sample] = deque(maxlen=256)
        self.events: deque[Event] = deque(maxlen=256)
        self.model: Optional[Model] = None
        self.error: Optional[str] = None
        self.devices: list[Any] = []
        self.looks: dict[tuple[str, str], Look] = {}  # (device, boundary): the latest
        self.lock = threading.Lock()  # devices, blocks, births: shared with the agent's thread
        self.interrupted: Any = None  # an exception of a signal handler that could not be raised where it hit
        self._wake = wake
        self._thread: Optional[int] = None
        self._dead = False
        self._unloading = False
        self._handles: list[Any] = []
        self._remove_backward: Any = None
        self._optimizers: dict[int, Any] = {}
        self._optimizer_steps: dict[int, int] = {}
        self._discovered = False
        self._backends = Backends(torch)
        self._reader: Optional[BlockReader] = None
        self._births: dict[str, Births] = {}
        self._peaks: dict[str, StepPeaks] = {}
        self._budget(now)
        self._counters_cost_ns = 0.0
        self._look_cost_ns = 0.0
        self._sampling = self._looking = True
        self._certain = True  # every boundary since the last look was looked at
        self._refreshed_ns = 0
        self._host_at_forward: Optional[int] = None
        self._described: Any = None

    def _budget(self, now: int) -> None:
        self._counters_budget = Budget(_COUNTERS_SHARE, _COUNTERS_BURST_NS, now)
        self._looks_budget = Budget(_LOOKS_SHARE, _LOOKS_BURST_NS, now)
        self._sampled_ns = 0

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
        now = time.monotonic_ns()
        self.lock = threading.Lock()  # the parent's agent may have held it
        self.phases = Phases(now)
        self.samples.clear()
        self.events.clear()
        self.looks.clear()
        self.devices = []
        self._thread = None
        self._peaks.clear()
        self._births.clear()
        self._backends = Backends(self.torch)
        self._discovered = False
        self._described = self.model = None
        self._sampling = self._looking = self._certain = True
        self._budget(now)

    def _take_out(self) -> None:
        # On the training's thread, for it may be iterating over these very dictionaries anywhere else.
        self._unloading = False
        WatchedHooks.noted = None
        for handle in self._handles:
            handle.remove()
        self._remove_backward()
        self.roots.clear()

    # -- what torch calls ---------------------------------------------------

    def _parameter(self, module: Any, _name: str, _parameter: Any) -> None:
        try:
            if not self._dead:
                self.roots.parameter(module)
        except Exception as error:  # noqa: BLE001 - the program must not meet an error of its monitor
            self._fail(error)

    def _child(self, parent: Any, _name: str, child: Any) -> None:
        try:
            if not self._dead:
                self.roots.child(parent, child)
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
            self._meet(optimizer)
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
            self._optimizer_steps[id(optimizer)] = self._optimizer_steps.get(id(optimizer), 0) + 1
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
        if kind == "backward_end" and not self._discovered:
            self._discover(now)
        if self._sampling:
            self._sample(kind, now, finished)
        if finished:
            self._plan()

    def step(self) -> None:
        """The program says that a step has ended."""
        self.phases.explicit_step(time.monotonic_ns())
        for counters in self.devices:
            self._peaks[counters.device].end_step(counters.read().get("allocated_bytes") or 0)
        self._plan()

    def _mine(self) -> bool:
        current = _thread.get_ident()
        if current != self._thread:
            # The first thread that trains is the one that is followed, as long as it lives.
            if self._thread is not None and any(t.ident == self._thread for t in threading.enumerate()):
                return False
            self._thread = current
        return True

    def _plan(self) -> None:
        """Decides, at a step's end, how closely the next one is looked at."""
        now = time.monotonic_ns()
        was_looking, self._looking = self._looking, False
        due = now - self._sampled_ns >= _SPACING_NS
        self._sampling = due and self._counters_budget.allows(self._counters_cost_ns, now)
        if self._sampling:
            self._sampled_ns = now
        if self._sampling and self._looks_budget.allows(self._look_cost_ns, now):
            self._looking = True
            if not (was_looking and self._certain):
                # What is there before the step begins is not of this step; where it was born is not known.
                self._look("", now, finished=False, prime=True)
                self._certain = True

    def _sample(self, kind: str, now: int, finished: bool) -> None:
        if now - self._refreshed_ns > _REFRESH_NS or not self.devices:
            self.refresh(now)
        begun = time.perf_counter_ns()
        phases = self.phases
        readings = [self.read(counters, phases.ended) for counters in self.devices]
        if finished:
            for reading in readings:
                peaks = self._peaks[reading.device]
                peaks.end_step(reading.figures.get("allocated_bytes") or 0)
                reading.step_peak = self._step_peak(peaks)
        spent = time.perf_counter_ns() - begun
        self._counters_cost_ns = _smooth(self._counters_cost_ns, 6 * spent)
        self._counters_budget.spend(spent)
        looks: dict[str, Look] = {}
        if self._looking:
            # One step may have many boundaries (accumulation): the rest of it is left out once it costs too much.
            if self._look_cost_ns and not self._looks_budget.allows(self._look_cost_ns / 8, now):
                self._looking = self._certain = False
            else:
                looks = self._look(kind, now, finished=finished)
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

    def refresh(self, now: int) -> None:
        """Finds devices that are newly in use; either thread."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            self._refreshed_ns = now
            self.devices = self._backends.refresh()
            for counters in self.devices:
                self._peaks.setdefault(counters.device, StepPeaks())
                self._births.setdefault(counters.device, Births(self._workspace_sizes()))
        finally:
            self.lock.release()

    def _workspace_sizes(self) -> frozenset[int]:
        size = getattr(self.torch._C, "_cuda_getCublasWorkspaceSize", None)
        return _WORKSPACES | {int(size())} if size is not None and self.torch.cuda.is_initialized() else _WORKSPACES

    def read(self, counters: Any, phase: str) -> Reading:
        """One device's counters now, and the step's peak with them; either thread."""
        figures = counters.read()
        peaks = self._peaks[counters.device]
        allocated = figures.get("allocated_bytes")
        if allocated is not None:
            working = self.phases.phase not in ("startup", "between")
            peaks.sample(allocated, figures.get("allocated_peak_bytes"), phase, working=working)
        return Reading(counters.device, figures, self._step_peak(peaks))

    @staticmethod
    def _step_peak(peaks: StepPeaks) -> tuple[int, bool, Optional[int], bool, Optional[str]]:
        return peaks.current_bytes, peaks.exact, peaks.last_bytes, peaks.last_exact, peaks.last_phase

    # -- categories ------------------------------------------------------------

    def _look(self, kind: str, now: int, *, finished: bool, prime: bool = False) -> dict[str, Look]:
        if not self.lock.acquire(blocking=False):
            self._looking = self._certain = False
            return {}
        begun = time.perf_counter_ns()
        try:
            owned = self._walk()
            looks = self._host_look(kind, now, owned) if self._on_host() else self._device_look(now, owned, finished)
            if kind == "optimizer_end" and finished:
                self._describe(now)
        finally:
            self.lock.release()
        spent = time.perf_counter_ns() - begun
        self._look_cost_ns = _smooth(self._look_cost_ns, 6 * spent)
        self._looks_budget.spend(spent)
        if not prime:
            for device, look in looks.items():
                self.looks[(device, kind)] = look
        return looks

    def _on_host(self) -> bool:
        return len(self.devices) == 1 and self.devices[0].device == "host"

    def _walk(self) -> Owned:
        walk = Walk(self.torch)
        with self.torch._C.DisableTorchFunctionSubclass():
            walk.roots(self.roots.modules())
            walk.optimizers(self._known_optimizers())
        return walk.owned

    def _device_look(self, now: int, owned: Owned, finished: bool) -> dict[str, Look]:
        blocks = self._read_blocks()
        if blocks is None:
            self._certain = False
            return {}
        phases = self.phases
        looks = {}
        for index, found in blocks.items():
            device = f"cuda:{index}"
            births = self._births.get(device)
            if births is not None:
                categories = births.classify(
                    found,
                    owned.addresses.get(device, {}),
                    phases.ended,
                    certain=self._certain,
                    step_ended=finished,
                )
                looks[device] = Look(now, phases.phase, phases.step, categories, found)
        return looks

    def _read_blocks(self) -> Optional[dict[int, Blocks]]:
        if not self.torch.cuda.is_initialized():
            return None
        if self._reader is None:
            self._reader = BlockReader(self.torch)
        return self._reader.read()

    def _host_look(self, kind: str, now: int, owned: Owned) -> dict[str, Look]:
        counters = self.devices[0]
        allocated = counters.read().get("allocated_bytes")
        if allocated is None:
            return {}
        if kind == "forward_start":
            self._host_at_forward = allocated
        born = 0
        if kind == "backward_start" and self._host_at_forward is not None:
            born = allocated - self._host_at_forward
        categories = host_categories(allocated, owned.host_bytes, born)
        return {counters.device: Look(now, self.phases.phase, self.phases.step, categories, None)}

    def look_between(self, now: int) -> dict[str, Look]:
        """Categories in mid-phase, from the agent's thread: blocks only, no tensor is touched.

        Where the phase's beginning was looked at, everything born since was born in it.
        """
        phases = self.phases
        phase, begun_by = phases.phase, phases.begun_by
        if self._dead or not self._looking or not self._certain or self._on_host() or not begun_by:
            return {}
        if self._look_cost_ns and not self._looks_budget.allows(self._look_cost_ns / 6, now):
            return {}
        if not self.lock.acquire(blocking=False):
            return {}
        begun = time.perf_counter_ns()
        looks = {}
        try:
            blocks = self._read_blocks()
            if blocks is None or phases.phase != phase or phases.begun_by != begun_by:
                return {}
            for index, found in blocks.items():
                births = self._births.get(f"cuda:{index}")
                if births is not None:
                    categories = births.classify(found, None, phase, certain=True, step_ended=False)
                    looks[f"cuda:{index}"] = Look(now, phase, phases.step, categories, found)
        finally:
            self.lock.release()
            self._looks_budget.spend(time.perf_counter_ns() - begun)
        return looks

    # -- discovery ---------------------------------------------------------------

    def _meet(self, optimizer: Any) -> None:
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = discovery.reference(optimizer)
            self._optimizer_steps.setdefault(id(optimizer), 0)
            self._described = None

    def _known_optimizers(self) -> list[Any]:
        return [found for found in (reference() for reference in self._optimizers.values()) if found is not None]

    def _discover(self, now: int) -> None:
        self._discovered = True
        found = discovery.scan(self.torch)
        for optimizer in found.optimizers:
            self._meet(optimizer)
        self.roots.merge(found.roots)
        self._describe(now)
        self.events.append(
            Event(
                name="discovery",
                time_ns=now,
                step=self.phases.step,
                phase=self.phases.phase,
                figures={
                    "pause_ns": found.pause_ns,
                    "objects": found.objects,
                    "roots": len(self.roots.modules()),
                    "optimizers": len(self._optimizers),
                },
            )
        )

    def _describe(self, now: int) -> None:
        stepped = sum(1 for steps in self._optimizer_steps.values() if steps)
        state = (self.roots.revision, len(self._optimizers), stepped)
        if state == self._described:
            return
        before, self._described = self.model, state
        with self.torch._C.DisableTorchFunctionSubclass():
            self.model = describe(
                self.torch, self.roots.modules(), self._known_optimizers(), self._optimizer_steps, now
            )
        made = _state_bytes(self.model) - (_state_bytes(before) if before is not None else 0)
        if stepped and made > 0:
            self.events.append(
                Event(
                    name="optimizer_state_appeared",
                    time_ns=now,
                    step=self.phases.step,
                    phase="optimizer",
                    figures={"state_bytes": made, "parameter_bytes": sum(self.model.parameter_bytes.values())},
                )
            )


def _state_bytes(model: Model) -> int:
    return sum(sum((optimizer.state_bytes or {}).values()) for optimizer in model.optimizers)


def _smooth(held: float, new: float) -> float:
    return new if not held else 0.7 * held + 0.3 * new


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
