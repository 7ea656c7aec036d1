"""What is known of one out-of-memory error, by whatever way: a message's rounded figures, or live exact ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Optional

from .interval import NOTHING, Interval
from .message import Message

#: What the request failed on; whose figures can be judged how.
Allocator = Literal["native", "async", "metal", "host"]
#: A context with its kernels takes up to this of a process, as a rule (0.3 to 2 GB).
LARGEST_CONTEXT_BYTES = 2 << 30


@dataclass(frozen=True)
class Pin:
    """A live block that keeps a segment, and the holes beside it, from being given back."""

    name: str
    bytes: int
    segment_bytes: Optional[int] = None


@dataclass(frozen=True)
class Larger:
    """A batch that is larger than every one before, in whatever it is counted."""

    size: int
    before: int
    unit: str = "tokens"


@dataclass(frozen=True)
class Outgrown:
    """A step that needs so many bytes at least, where none of the `steps` before it had more than `before_bytes`."""

    needed_bytes: int
    before_bytes: int
    steps: int


@dataclass(frozen=True)
class Live:
    """What only somebody who watched the process knows; each may be unknown.

    `growth_bytes_per_step` is of a leak that was told from a warm-up (`memtui.analysis.leak`), nothing else. Bytes are
    those at the failing request.
    """

    phase: str = ""
    step: Optional[int] = None
    first_optimizer_step: bool = False
    state_bytes: Optional[int] = None  # all that the optimizers keep then; predicted
    state_to_come_bytes: Optional[int] = None  # what that step was still to make, at least; predicted
    categories: Mapping[str, int] = field(default_factory=dict)
    categories_step: Optional[int] = None  # how many were completed when they were so, where that was another step
    births_known: bool = True  # False where so much has no known owner that activations and the like are no bounds
    evaluates: bool = False  # in eval mode with gradients on, after a training that was not
    growth_bytes_per_step: Optional[float] = None
    grown_bytes: Optional[int] = None  # by that, until the failing request
    growth_since_step: Optional[int] = None  # how many were completed then
    growing_category: str = ""
    larger_batch: Optional[Larger] = None
    outgrown: Optional[Outgrown] = None
    batch: Optional[int] = None
    devices: Optional[int] = None  # among which state could be sharded
    largest_free_block_bytes: Optional[int] = None
    pinned_segments: Optional[int] = None
    pins: tuple[Pin, ...] = ()  # the largest first
    expandable: Optional[bool] = None


@dataclass(frozen=True)
class Evidence:
    """Bytes as intervals, of width 0 where they are exact; None where unknown.

    `allocated` contains what private pools hold free, as PyTorch prints it; `own` is the whole process by the driver,
    `others` every other process on the device. `unseen` are figures that may have stood where a message was cut off.
    """

    tried: Optional[Interval] = None
    total: Optional[Interval] = None
    free: Optional[Interval] = None
    allocated: Optional[Interval] = None
    idle: Optional[Interval] = None
    reserved: Optional[Interval] = None
    private: Optional[Interval] = None
    allowed: Optional[Interval] = None
    own: Optional[Interval] = None
    others: Optional[Interval] = None
    beside: Optional[Interval] = None  # Metal's: of this process, outside PyTorch's allocator
    allocator: Allocator = "native"
    backend: str = "CUDA"
    expandable_hint: Optional[bool] = None
    unseen: frozenset[str] = frozenset()
    watched: bool = False  # by an agent: the figures are of that very instant
    live: Live = field(default_factory=Live)

    @property
    def live_tensors(self) -> Optional[Interval]:
        """What tensors hold, without the free blocks of private pools."""
        if self.allocated is None:
            return None
        return (self.allocated - (self.private or NOTHING)).at_least_nothing()

    @property
    def outside(self) -> Optional[Interval]:
        """On the device and not in this PyTorch's allocator: contexts, libraries, other processes."""
        if self.total is None or self.free is None or self.reserved is None:
            return None
        return (self.total - self.free - self.reserved).at_least_nothing()

    @property
    def own_outside(self) -> Optional[Interval]:
        """Of this process, outside PyTorch's allocator."""
        if self.beside is not None:
            return self.beside
        if self.own is None or self.reserved is None:
            return None
        return (self.own - self.reserved).at_least_nothing()

    @property
    def free_bounds(self) -> Optional[Interval]:
        """What can be free: where that is unknown, what PyTorch does not hold, or any less."""
        if self.free is not None or self.total is None or self.reserved is None:
            return self.free
        return Interval(0, max(0, (self.total - self.reserved).high))

    @property
    def in_pools(self) -> bool:
        """Whether what is free in the pools of CUDA graphs would have served the request, and nothing else would.

        A message's figures are too coarse to say so.
        """
        at_hand = self.at_hand
        if not self.watched or self.tried is None or self.private is None or at_hand is None:
            return False
        return self.tried.low > at_hand.high and self.tried.high <= at_hand.low + self.private.low

    @property
    def at_hand(self) -> Optional[Interval]:
        """What is free on the device or idle in PyTorch, in whatever pieces."""
        return None if self.free is None or self.idle is None else self.free + self.idle


def evidence_of(message: Message, live: Optional[Live] = None) -> Evidence:
    """What a message shows."""
    idle, reserved = message.idle, message.reserved
    allocated, total, free = (message.interval(name) for name in ("allocated", "total", "free"))
    used = None if total is None or free is None else (total - free).at_least_nothing()
    own = _own(message, used, reserved or allocated)
    if reserved is None and allocated is not None:
        idle, reserved = _bounded(allocated, used, own)
    metal = message.format == "metal"
    unseen = {name for name, value in (("allocated", allocated), ("idle", message.idle)) if value is None}
    if not message.complete and (allocated is None or message.format != "sentences"):
        unseen.add("allowed")
    return Evidence(
        tried=message.interval("tried"),
        total=total,
        free=free,
        allocated=allocated,
        idle=idle,
        reserved=reserved,
        private=message.interval("private"),
        allowed=message.interval("allowed"),
        own=own,
        others=_others(message, used, own),
        beside=message.interval("other") if metal else None,
        allocator="metal" if metal else "async" if message.format == "async" else "native",
        backend=message.backend,
        expandable_hint=message.expandable_hint if message.complete and message.format == "sentences" else None,
        unseen=frozenset() if message.complete else frozenset(unseen),
        live=live or Live(),
    )


def _bounded(
    allocated: Interval, used: Optional[Interval], own: Optional[Interval]
) -> tuple[Optional[Interval], Optional[Interval]]:
    """What may be idle and reserved where a message does not say: no more than the process, or the device, has."""
    bounds = [each.high for each in (own, used) if each is not None]
    if not bounds:
        return None, None
    most = max(allocated.high, min(bounds))
    return Interval(0, most - allocated.low), Interval(allocated.low, most)


def _own(message: Message, used: Optional[Interval], held: Optional[Interval]) -> Optional[Interval]:
    """What this process holds by the driver; None where that cannot be told.

    In a container the own process is listed by a pid of another namespace, as if it were another one: it is told by
    being the only one that can hold what the allocator holds, with no room for it beside what is listed.
    """
    sizes = [each.size.interval for each in message.processes]
    known = [size for size in sizes if size is not None]
    if "in_use" in message.figures or not known or len(known) < len(sizes) or held is None or used is None:
        return message.interval("in_use")
    unlisted = used.high - sum(size.low for size in known)
    possible = [size for size in known if size.high >= held.low]
    return possible[0] if len(possible) == 1 and unlisted < held.low else None


def _others(message: Message, used: Optional[Interval], own: Optional[Interval]) -> Optional[Interval]:
    """What all other processes hold together."""
    if own is None:
        return None
    derived = None if used is None else (used - own).at_least_nothing()
    sizes = [each.size.interval for each in message.processes]
    if not sizes or None in sizes or "in_use" not in message.figures:
        return derived
    known = [size for size in sizes if size is not None]
    listed = Interval(sum(size.low for size in known), sum(size.high for size in known))
    return listed if derived is None else derived.with_(listed)
