"""Categories at boundaries and, where a phase is long, within it: what is looked at when, within a budget."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any, Optional

from ..wire import codec
from ..wire.frames import Classification, made
from .blocks import BlockReader, Blocks, device_blocks
from .budget import Budget, Meter
from .classify import Births, host_categories
from .communication import Buckets
from .identity import Addresses, Walk
from .inventory import Inventory
from .phases import Phases
from .readable import Readable
from .readings import Readings

#: At most this share of the training's time goes into categories.
_SHARE, _BURST_NS = 0.001, 60_000_000
#: Where steps are long, more: else the categories of a large model would be half a minute old.
_LONG_SHARE, _LONG_NS = 0.004, 100_000_000
_BOUNDARIES_A_STEP = 6
#: What a look is taken to cost before one was made.
_FIRST_NS = 1_000_000
#: cuBLAS's default workspace on compute capability 8; newer torch tells the size itself.
_WORKSPACES = frozenset({8_519_680})
#: What stays from step to step.
_STAYS = ("parameters", "buffers", "optimizer_state")
#: Boundaries whose composition a frame in a phase may be nearest to.
_NEAREST = {
    "forward": ("forward_start", "backward_start"),
    "evaluation": ("evaluation_start", "forward_start", "optimizer_end"),
    "backward": ("backward_start", "backward_end"),
    "optimizer": ("optimizer_start", "optimizer_end"),
    "between": ("optimizer_end", "forward_start", "backward_end", "optimizer_start"),
}


@dataclass
class Look:
    """Categories and blocks of one device at one instant; `allocated_bytes` is the sum of the categories."""

    time_ns: int
    phase: str
    step: int
    categories: dict[str, int]
    blocks: Optional[Blocks]
    allocated_bytes: int
    tagged: dict[str, int]  # bytes by category of what the program has named
    strays: int = 0  # bytes that only seem to be inputs
    largest_activation_bytes: int = 0
    _text: str = ""
    _stays_bytes: int = -1

    def _found(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "allocated_bytes": self.allocated_bytes,
            "phase": self.phase,
            "step": self.step,
            "categories": {name: size for name, size in self.categories.items() if size},
        }
        if self.tagged:
            found["tagged"] = self.tagged
        if self.largest_activation_bytes:
            found["largest_activation_bytes"] = self.largest_activation_bytes
        return found

    def classification(self, now_ns: int) -> Classification:
        """What it found, as of `now_ns`; categories of no bytes are left out."""
        return made(Classification, {"age_ns": max(0, now_ns - self.time_ns), **self._found()})

    def text(self, now_ns: int) -> codec.Text:
        """The same, for a frame of `now_ns`; from the agent's thread, when nothing will be added any more."""
        rest = self._text
        if not rest:
            rest = self._text = codec.rest_of(self._found())
        return codec.aged(max(0, now_ns - self.time_ns), rest)

    def unexplained(self, allocated_bytes: int) -> int:
        """Bytes of `allocated_bytes` that this look does not explain."""
        return abs(allocated_bytes - self.allocated_bytes) + abs(self.categories.get("unattributed", 0))

    def possible(self, allocated_bytes: Optional[int]) -> bool:
        """Whether what stays can all still be there; else the model has gone, and this is past."""
        if self._stays_bytes < 0:
            self._stays_bytes = sum(self.categories.get(name, 0) for name in _STAYS)
        return allocated_bytes is None or self._stays_bytes <= allocated_bytes


class Looks:
    """Decides which steps are looked at, and looks: on the training's thread at boundaries, on the agent's between."""

    def __init__(self, torch: Any, inventory: Inventory, readings: Readings, lock: threading.Lock, now_ns: int) -> None:
        self._torch, self._inventory, self._readings, self._lock = torch, inventory, readings, lock
        self._latest: dict[tuple[str, str], Look] = {}  # (device, boundary)
        self._births: dict[str, Births] = {}
        self._reader: Optional[BlockReader] = None
        self.own_history = False  # whether torch keeps a history for the agent
        self._buckets = Buckets()
        self._requested: Counter[int] = Counter()
        self._budget = Budget(_SHARE, _BURST_NS, now_ns)
        self._payer = self._budget  # who pays for the step under way
        self._cost_ns = 0.0
        self._spent_ns = 0  # on the step under way
        self._looked_ns = -1  # when the phase began whose beginning was looked at last
        self._looking = True
        self._certain = True  # every boundary since the last look was looked at
        self._trained = False  # a root with parameters was in training mode at the last beginning of a backward pass
        self._host_at_forward: Optional[int] = None

    @property
    def cost_ns(self) -> float:
        """What looking at a whole step is expected to cost."""
        return self._cost_ns

    @property
    def _usual_ns(self) -> float:
        return self._cost_ns / _BOUNDARIES_A_STEP or _FIRST_NS

    def plan(self, phases: Phases, now_ns: int, guest: Optional[Budget] = None) -> None:
        """At a step's end, where the next one is read: decides whether it is also looked at.

        It is in any case where there is a `guest`, who pays if these looks are not due by themselves.
        """
        self._spent_ns = 0
        self._budget.share = _LONG_SHARE if (phases.last_step_ns or 0) >= _LONG_NS else _SHARE
        due = self._budget.allows(self._cost_ns, now_ns)
        self._payer = self._budget if due or guest is None else guest
        was_looking, self._looking = self._looking, due or guest is not None
        if self._looking and not (was_looking and self._certain):
            # What is there before the step begins is not of this step; in which phase it was born is not known.
            self._certain = False
            self._look("", phases, now_ns, phases.ended, finished=False)
            self._certain = True

    def pause(self) -> None:
        """The next step is not looked at."""
        self._looking = False

    def dismiss(self, guest: Budget) -> None:
        """The guest has seen enough: the rest of the step is not looked at where it pays."""
        if self._payer is guest:
            self._payer, self._looking = self._budget, False

    def once(self, phases: Phases, now_ns: int, born_in: str, guest: Budget) -> Optional[dict[str, Look]]:
        """One look at a boundary of a step that is not looked at; what is new has no known birth.

        None while somebody else looks.
        """
        self._looking = self._certain = False
        if not self._lock.acquire(blocking=False):
            return None
        self._payer = guest
        return self._look_locked("", phases, now_ns, born_in, finished=False)

    def missed(self) -> None:
        """A boundary was not looked at: what is born around it is of no one phase."""
        self._looking = self._certain = False

    def at_boundary(self, kind: str, phases: Phases, now_ns: int, born_in: str, *, finished: bool) -> dict[str, Look]:
        """Looks at a boundary, by device; nothing where the step is not looked at.

        `born_in` is the phase in which what is new since the last boundary was born.
        """
        if not self._looking:
            return {}
        # One step may have many boundaries (accumulation): the rest of it is left out once it costs too much.
        if self._spent_ns > max(2 * self._cost_ns, _BURST_NS):
            self._looking = self._certain = False
            return {}
        looks = self._look(kind, phases, now_ns, born_in, finished=finished)
        for device, look in looks.items():
            self._latest[(device, kind)] = look
        self._looked_ns = phases.since_ns
        return looks

    def latest(self, device: str, boundary: str) -> Optional[Look]:
        """What was found at the latest boundary of a kind."""
        return self._latest.get((device, boundary))

    def nearest(
        self, device: str, phase: str, allocated_bytes: Optional[int], now: Optional[Look] = None
    ) -> Optional[Look]:
        """Of the boundaries around `phase`, and a look of `now`, the one that leaves least unexplained.

        Unexplained is what it had unattributed itself, and what is allocated beyond it or short of it.
        """
        if allocated_bytes is None:
            return now
        nearest, least = now, 0 if now is None else now.unexplained(allocated_bytes)
        for kind in _NEAREST.get(phase, ()):
            look = self._latest.get((device, kind))
            if look is not None:
                unexplained = look.unexplained(allocated_bytes)
                if nearest is None or unexplained < least:
                    nearest, least = look, unexplained
        return nearest

    def _look(self, kind: str, phases: Phases, now_ns: int, born_in: str, *, finished: bool) -> dict[str, Look]:
        if not self._lock.acquire(blocking=False):
            self._looking = self._certain = False
            return {}
        return self._look_locked(kind, phases, now_ns, born_in, finished=finished)

    def _look_locked(self, kind: str, phases: Phases, now_ns: int, born_in: str, *, finished: bool) -> dict[str, Look]:
        meter = Meter()
        try:
            if self._readings.on_host:
                looks = self._at_host(kind, phases, now_ns)
            else:
                looks = self._at_devices(phases, now_ns, born_in, finished)
                if kind == "backward_start":
                    self._trained = self._inventory.roots.any_in_training()
                    for device, look in looks.items():
                        look.largest_activation_bytes = self._births_of(device).largest_activation_bytes
        finally:
            self._lock.release()
        spent = meter.spent_ns(self._usual_ns)
        self._cost_ns = _BOUNDARIES_A_STEP * spent if not self._cost_ns else 0.7 * self._cost_ns + 1.8 * spent
        self._payer.spend(spent)
        self._spent_ns += spent
        return looks

    def _walk(self, readable: Readable) -> Walk:
        walk = Walk(self._torch, readable)
        walk.roots(self._inventory.roots.modules())
        walk.optimizers(self._inventory.optimizers())
        if self._inventory.tags:
            walk.tags(self._inventory.tags.tagged())
        return walk

    def _owned(self) -> Addresses:
        with self._torch._C.DisableTorchFunctionSubclass(), self._inventory.reading() as readable:
            return self._walk(readable).addresses()

    def _owned_on_host(self) -> dict[str, int]:
        with self._torch._C.DisableTorchFunctionSubclass(), self._inventory.reading() as readable:
            return self._walk(readable).host_bytes()

    def _at_devices(self, phases: Phases, now_ns: int, born_in: str, finished: bool) -> dict[str, Look]:
        if finished or self._buckets.pending:
            self._requested = self.buckets()
        blocks = self._read_blocks()
        if blocks is None:
            self._certain = False
            return {}
        owned, looks = self._owned(), {}
        for device, found in blocks.items():
            births = self._births_of(device)
            categories = births.classify(found, owned, born_in, certain=self._certain, step_ended=finished)
            size = found.allocated_bytes
            looks[device] = Look(
                now_ns, phases.phase, phases.step, categories, found, size, births.tagged, births.strays
            )
        return looks

    def switched_to_eval(self) -> bool:
        """Whether no root is in training mode any more; reads flags alone."""
        return self._trained and not self._inventory.roots.any_in_training()

    def when_failed(
        self, device: str, phases: Phases, now_ns: int, snapshot: dict[str, Any]
    ) -> tuple[Classification, Births]:
        """What `snapshot`, torch's own, shows of a device whose allocation has failed; the caller holds the lock.

        No tensor is touched: the owners of the last walk hold, and what is new since then is of a known phase only
        where that began with a look.
        """
        found = device_blocks(snapshot["segments"], device)
        certain = self._looking and self._certain and phases.since_ns == self._looked_ns
        self._certain = self._certain and certain  # else blocks of several phases would be told as of one
        births = self._births_of(device)
        phase = phases.phase if certain else ""
        categories = births.classify(found, None, phase, certain=certain, step_ended=False)
        look = Look(now_ns, phases.phase, phases.step, categories, found, found.allocated_bytes, births.tagged)
        return look.classification(now_ns), births

    @property
    def reader(self) -> BlockReader:
        """What reads blocks; once the device is initialised."""
        if self._reader is None:
            self._reader = BlockReader(self._torch)
        return self._reader

    def _births_of(self, device: str) -> Births:
        births = self._births.get(device)
        if births is None:
            births = self._births[device] = Births(self.workspaces())
        return births

    def workspaces(self) -> frozenset[int]:
        """The sizes that a workspace of cuBLAS has."""
        size = getattr(self._torch._C, "_cuda_getCublasWorkspaceSize", None)
        return _WORKSPACES | {int(size())} if size is not None else _WORKSPACES

    def buckets(self) -> Counter[int]:
        """How many buckets of DDP were asked for with so many bytes."""
        return self._buckets.numbers(self._inventory.roots.modules())

    def known(self, device: str) -> dict[int, tuple[int, str]]:
        """Bytes and category of each block that nobody owned at the last look, by address; not to be changed."""
        births = self._births.get(device)
        return births.known if births is not None else {}

    @property
    def settings(self) -> dict[str, Any]:
        """The allocator's, as torch told them with the newest blocks."""
        return {} if self._reader is None else self._reader.settings

    def _read_blocks(self) -> Optional[dict[str, Blocks]]:
        if not self._torch.cuda.is_initialized():
            return None
        self.reader.requested = self._requested
        return self.reader.read(own=self.own_history)

    def _at_host(self, kind: str, phases: Phases, now_ns: int) -> dict[str, Look]:
        counters = self._readings.devices[0]
        allocated = counters.read().get("allocated_bytes")
        if allocated is None:
            return {}
        if kind == "forward_start":
            self._host_at_forward = allocated
        born = 0
        if kind == "backward_start" and self._host_at_forward is not None:
            born = allocated - self._host_at_forward
        categories, tagged = host_categories(allocated, self._owned_on_host(), born)
        return {counters.device: Look(now_ns, phases.phase, phases.step, categories, None, allocated, tagged)}

    def between(self, phases: Phases, now_ns: int) -> dict[str, Look]:
        """Looks in mid-phase, from the agent's thread: at blocks only, no tensor is touched.

        Where the phase's beginning was looked at, everything born since was born in it.
        """
        phase, begun_by = phases.phase, phases.begun_by
        if not (self._looking and self._certain) or self._readings.on_host:
            return {}
        if phases.since_ns != self._looked_ns:
            return {}  # the training's thread is just at the boundary, or passed it without a look
        if self._cost_ns and not self._budget.allows(self._cost_ns / _BOUNDARIES_A_STEP, now_ns):
            return {}
        if not self._lock.acquire(blocking=False):
            return {}
        meter = Meter()
        try:
            blocks = self._read_blocks()
            if blocks is None or phases.phase != phase or phases.begun_by != begun_by:
                return {}
            looks = {}
            for device, found in blocks.items():
                births = self._births_of(device)
                categories = births.classify(found, None, phase, certain=True, step_ended=False)
                looks[device] = Look(
                    now_ns, phase, phases.step, categories, found, found.allocated_bytes, births.tagged
                )
            return looks
        finally:
            self._lock.release()
            self._budget.spend(meter.spent_ns(self._usual_ns))
