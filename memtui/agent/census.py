"""Requests for live tensors and segments: when they are answered, within a budget, and what is noted for the answer."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Optional

from .budget import Budget
from .inventory import Inventory
from .looks import Look, Looks
from .names import Names, Selected
from .phases import Phases
from .readings import Readings
from .tensors import MOST_ROWS, Memory, Taken

#: At most this share of the training's time goes into answers.
_SHARE, _BURST_NS = 0.002, 60_000_000
#: So long a request waits for the boundary at which most is allocated; then any boundary will do.
_PATIENCE_NS = 2_000_000_000
#: Where it is not known at which boundary most is allocated.
_FULLEST = "backward_start"


class Census:
    """One answer for all who have asked since the last; `taken` is left for the agent's thread to collect."""

    def __init__(self, torch: Any, inventory: Inventory, readings: Readings, looks: Looks, now_ns: int) -> None:
        self._torch, self._inventory, self._readings, self._looks = torch, inventory, readings, looks
        self.taken: deque[Taken] = deque(maxlen=4)
        self.budget = Budget(_SHARE, _BURST_NS, now_ns)
        self._asked: dict[str, int] = {}  # what, and since when
        self._due_ns = 0  # no request is answered before, on a step that is looked at anyway
        self._urgent_ns = 0  # nor one that a step is looked at for
        self._spent_ns = 0  # on the last answer

    def ask(self, now_ns: int, name: str = "tensors") -> None:
        """A viewer asks for something of `answers.REQUESTS`; from the agent's thread."""
        self._asked.setdefault(name, now_ns)

    @property
    def asked(self) -> bool:
        """Whether a request waits."""
        return bool(self._asked)

    def urgent(self, now_ns: int) -> bool:
        """Whether a request waits for which a step may be looked at; from either thread."""
        return bool(self._asked) and now_ns >= self._urgent_ns

    def at_boundary(self, kind: str, phases: Phases, now_ns: int, born_in: str, looks: dict[str, Look]) -> None:
        """Notes the tensors if this is the boundary for it; `looks` are those made at it, none on most steps."""
        asked = list(self._asked.items())
        if not asked or now_ns < self._due_ns:
            return
        late = now_ns - max(min(since_ns for _, since_ns in asked), self._urgent_ns) > _PATIENCE_NS
        if not late and not (looks and kind == self._fullest()):
            return
        found: Optional[dict[str, Look]] = looks or self._looks.once(phases, now_ns, born_in, self.budget)
        if found is None:
            return  # the agent's thread is just looking: at the next boundary
        wanted = frozenset(name for name, _ in asked)
        begun, begun_cpu = time.perf_counter_ns(), time.thread_time_ns()
        memories = self._memories(found, segments="segments" in wanted)
        if memories is None:
            return
        for name in wanted:  # asked again while this is noted: that is answered too
            del self._asked[name]
        selected = self._select(memories)
        spent = time.perf_counter_ns() - begun
        settings = self._looks.settings
        self.taken.append(Taken(now_ns, phases.step, phases.phase, memories, selected, spent, wanted, settings))
        self._looks.dismiss(self.budget)
        self._spent_ns = 0
        self.spend(time.thread_time_ns() - begun_cpu, now_ns)

    def spend(self, cost_ns: int, now_ns: int) -> None:
        """Takes what an answer has cost, on either thread; the next one is expected to cost the same."""
        self._spent_ns += cost_ns
        self.budget.spend(cost_ns)
        self._due_ns = now_ns + self.budget.wait_ns(self._spent_ns, now_ns)
        self._urgent_ns = now_ns + self.budget.wait_ns(self._spent_ns + self._looks.cost_ns, now_ns)

    def _fullest(self) -> str:
        """The boundary at which most was allocated, when the boundaries were looked at last."""
        most, fullest = self._allocated(_FULLEST), _FULLEST
        if most is None:
            return fullest
        for kind in ("forward_start", "optimizer_start", "optimizer_end"):
            allocated = self._allocated(kind)
            if allocated is not None and allocated > most:
                most, fullest = allocated, kind
        return fullest

    def _allocated(self, kind: str) -> Optional[int]:
        looks = [self._looks.latest(counters.device, kind) for counters in self._readings.devices]
        found = [look.allocated_bytes for look in looks if look is not None]
        return sum(found) if found else None

    def _memories(self, looks: dict[str, Look], *, segments: bool) -> Optional[list[Memory]]:
        """None where segments are wanted and the agent's thread has counted them just now: at the next boundary."""
        memories = []
        blocks = any(look.blocks is not None for look in looks.values())
        for counters in self._readings.devices:
            device = counters.device
            look = looks.get(device)
            if look is None and blocks:
                continue  # in use only since the look
            if look is None:
                allocated = counters.read().get("allocated_bytes")
                if allocated is not None:
                    memories.append(Memory(device, allocated))
            elif look.blocks is None:
                activations = look.categories.get("activations", 0)
                memories.append(Memory(device, look.allocated_bytes, rest={"activations": activations}))
            else:
                found = look.blocks.segments if segments else []
                if found is None:
                    return None
                births = self._looks.known(device)
                memories.append(Memory(device, look.allocated_bytes, look.blocks.live, found, births))
        return memories

    def _select(self, memories: list[Memory]) -> Selected:
        live: Optional[dict[int, int]] = None
        for memory in memories:
            # No two devices share an address, nor a device and the host.
            live = memory.live if live is None else {**live, **(memory.live or {})}
        with self._torch._C.DisableTorchFunctionSubclass(), self._inventory.reading() as readable:
            names = Names(self._torch, readable)
            names.roots(self._inventory.roots.modules())
            names.optimizers(self._inventory.optimizers())
            names.tags(self._inventory.tags.tagged())
            return names.select(live, MOST_ROWS)
