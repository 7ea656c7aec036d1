"""What is known of the program: its root modules and optimizers, and what there is to tell about them."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Optional

from ..wire.frames import Event, Model
from . import discovery
from .identity import describe, members
from .moments import others_in_backward, others_write_gradients
from .naps import Nap
from .phases import Phases
from .readable import EVERYTHING, NOTHING, Readable, Trained
from .roots import Roots
from .tags import Tags

if TYPE_CHECKING:
    from .looks import Look

#: No reading lasts so long, but for one that runs code of the program's.
_READING_SECONDS = 1.0
#: Less than this is not searched for.
_LEAST_BYTES = 1 << 20


class Inventory:
    """Root modules and optimizers, by weak reference. Changed on the training's thread only."""

    def __init__(self, torch: Any, events: deque[Event]) -> None:
        self.roots = Roots()
        self.tags = Tags()
        self.model: Optional[Model] = None
        self.references: dict[int, Any] = {}  # to optimizers, by their id
        self.steps: dict[int, int] = {}  # of each optimizer
        self._others: set[int] = set()  # threads that were seen to run backward passes beside it; 0 for one of them
        self.alone = True  # whether no other thread than the one that is followed runs backward passes
        self.met = False  # whether optimizers that have not stepped yet were looked for
        self.scanned = False
        #: Whether every backward pass of the process has been seen, but for those in naps.
        self.from_start = True
        self.nap = Nap()
        self._trained = Trained()
        self.reader = 0  # the thread that reads gradients just now
        self._reading = threading.Lock()
        self._torch, self._events = torch, events
        self._described: Any = None
        self._compared: Any = None  # what was known when the optimizers' parameters were compared last

    def meet(self, optimizer: Any) -> None:
        """An optimizer is about to step."""
        key = id(optimizer)
        if key not in self.references or self.references[key]() is not optimizer:
            self.references[key] = discovery.reference(optimizer)
            self.steps[key] = 0
            self._described, self._trained = None, Trained()  # it may have the id of one that is gone

    @contextlib.contextmanager
    def reading(self) -> Iterator[Readable]:
        """Whose gradients may be read meanwhile: nobody's where another thread could write them.

        One that begins its backward pass now waits (`share`); one that began it before is seen on its stack. Of one
        that has made none yet that was seen, only what it trains itself could be being dropped.
        """
        if not self._reading.acquire(blocking=False):
            yield NOTHING  # another thread reads them
            return
        try:
            self.reader = threading.get_ident()
            busy = self.alone and others_write_gradients()  # one walk over the stacks, where nobody does
            if busy and others_in_backward():
                self._join(0)
            yield self._readable() if self.alone and not busy else NOTHING
        finally:
            self.reader = 0
            self._reading.release()

    def share(self) -> None:
        """This thread begins a backward pass and is not the only one: gradients are read no more, nor just now."""
        self._join(threading.get_ident())
        # Whoever is interrupted by a signal while it reads them, and runs a backward pass then, would wait for itself.
        if self.reader not in (0, threading.get_ident()) and self._reading.acquire(timeout=_READING_SECONDS):
            self._reading.release()

    def _join(self, thread: int) -> None:
        self.alone = False
        self._others.add(thread)

    def follow(self, thread: int, *, trained: bool) -> None:
        """Another `thread` is followed from now on; `trained` where the last one has run backward passes.

        One that has not (a summary of the model, a check of its shapes) has no gradients.
        """
        if not trained:
            self._others.discard(thread)
            self.alone = not self._others

    def _readable(self) -> Readable:
        # In a nap the backward passes of others are not seen either.
        if self.from_start and not self.nap.used:
            return EVERYTHING
        stepped = [optimizer for optimizer in self.optimizers() if self.steps.get(id(optimizer))]
        return self._trained.among(self.roots, stepped)

    def optimizers(self) -> list[Any]:
        """The optimizers that are alive."""
        return [found for found in (reference() for reference in list(self.references.values())) if found is not None]

    def discover(self, phases: Phases, now_ns: int) -> None:
        """Looks for optimizers, once; for modules too where the optimizers have parameters of no known one."""
        self.met = True
        if self.roots.modules():
            found = discovery.made_optimizers(self._torch)
            if found is not None:
                self._take_in(found, phases, now_ns)
                if self._all_known():
                    return
        self.search(phases, now_ns)

    def search(self, phases: Phases, now_ns: int) -> None:
        """Scans the heap, once, for what nothing announced."""
        if not self.scanned:
            self.scanned = True
            self._take_in(discovery.scan(self._torch), phases, now_ns)

    def lacks(self, looks: Iterable[Look]) -> bool:
        """Whether, after a step, there may be modules that nothing announced: copies.

        On a device, where so much is nobody's. Of the host's memory much always is, Python's own objects and libraries:
        there, where an optimizer that has come since has parameters of no known module.
        """
        return not self.scanned and any(
            self._has_strange_parameters()
            if look.blocks is None
            else look.categories["unattributed"] + look.strays > max(_LEAST_BYTES, look.allocated_bytes // 100)
            for look in looks
        )

    def _has_strange_parameters(self) -> bool:
        known = (self.roots.revision, tuple(self.references))
        changed, self._compared = known != self._compared, known
        return changed and not self._all_known()

    def _all_known(self) -> bool:
        known = set(map(id, members(self.roots.modules())[1]))
        return all(
            id(parameter) in known
            for optimizer in self.optimizers()
            for group in getattr(optimizer, "param_groups", ())
            for parameter in group["params"]
        )

    def _take_in(self, found: discovery.Found, phases: Phases, now_ns: int) -> None:
        known = len(self.references)
        for optimizer in found.optimizers:
            self.meet(optimizer)
        new = self.roots.merge(found.roots) + len(self.references) - known
        figures = {
            "new": new,
            "pause_ns": found.pause_ns,
            "objects": found.objects,
            "complete": int(found.complete),
            "roots": len(self.roots.modules()),
            "optimizers": len(self.references),
        }
        self._events.append(Event("discovery", now_ns, phases.step, phases.phase, figures=figures))
        self.describe(phases, now_ns)

    def describe(self, phases: Phases, now_ns: int) -> None:
        """Makes a new description where something has changed since the last."""
        stepped = sum(1 for steps in self.steps.values() if steps)
        state = (self.roots.revision, len(self.references), stepped)
        if state == self._described:
            return
        before, self._described = self.model, state
        with self._torch._C.DisableTorchFunctionSubclass():
            self.model = describe(self._torch, self.roots.modules(), self.optimizers(), self.steps, now_ns)
        if before is None:
            return  # what there is at the first look was there before: an agent may have come late
        made = _state_bytes(self.model) - _state_bytes(before)
        if stepped and made > 0:
            served = _served_bytes(self.model) - _served_bytes(before)
            figures = {"state_bytes": made, **({"parameter_bytes": served} if served > 0 else {})}
            self._events.append(Event("optimizer_state_appeared", now_ns, phases.step, "optimizer", figures=figures))

    def forget(self) -> None:
        """In a forked child: the modules stay known, the rest is found again."""
        self.model = self._described = self._compared = None
        self.met = self.scanned = False
        self.steps.clear()
        # The thread that was reading is its parent's.
        self.reader, self._reading = 0, threading.Lock()


def _served_bytes(model: Model) -> int:
    """Parameters of the optimizers that have state: those it was made for."""
    return sum(sum(optimizer.trainable_bytes.values()) for optimizer in model.optimizers if optimizer.state_bytes)


def _state_bytes(model: Model) -> int:
    return sum(sum((optimizer.state_bytes or {}).values()) for optimizer in model.optimizers)
