"""What is known of the program: its root modules and optimizers, and what there is to tell about them."""

from __future__ import annotations

from collections import deque
from typing import Any, Optional

from ..wire.frames import Event, Model
from . import discovery
from .identity import describe
from .phases import Phases
from .roots import Roots


class Inventory:
    """Root modules and optimizers, by weak reference. Changed on the training's thread only."""

    def __init__(self, torch: Any, events: deque[Event]) -> None:
        self.roots = Roots()
        self.model: Optional[Model] = None
        self.references: dict[int, Any] = {}  # to optimizers, by their id
        self.steps: dict[int, int] = {}  # of each optimizer
        self.scanned = False
        self._torch, self._events = torch, events
        self._described: Any = None

    def meet(self, optimizer: Any) -> None:
        """An optimizer is about to step."""
        key = id(optimizer)
        if key not in self.references or self.references[key]() is not optimizer:
            self.references[key] = discovery.reference(optimizer)
            self.steps[key] = 0
            self._described = None

    def optimizers(self) -> list[Any]:
        """The optimizers that are alive."""
        return [found for found in (reference() for reference in list(self.references.values())) if found is not None]

    def discover(self, phases: Phases, now_ns: int) -> None:
        """Scans the heap, once, for what nothing announced."""
        if self.scanned:
            return
        self.scanned = True
        found = discovery.scan(self._torch)
        for optimizer in found.optimizers:
            self.meet(optimizer)
        self.roots.merge(found.roots)
        figures = {
            "pause_ns": found.pause_ns,
            "objects": found.objects,
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
        made = _state_bytes(self.model) - (_state_bytes(before) if before is not None else 0)
        if stepped and made > 0:
            figures = {"state_bytes": made, "parameter_bytes": sum(self.model.parameter_bytes.values())}
            self._events.append(Event("optimizer_state_appeared", now_ns, phases.step, "optimizer", figures=figures))

    def forget(self) -> None:
        """In a forked child: the modules stay known, the rest is found again."""
        self.model = self._described = None
        self.scanned = False
        self.steps.clear()


def _state_bytes(model: Model) -> int:
    return sum(sum((optimizer.state_bytes or {}).values()) for optimizer in model.optimizers)
