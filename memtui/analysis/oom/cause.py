"""The cause of an out-of-memory error, by rule: certain only where all figures that print as these do lead to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Optional

from memtui.analysis.policy import DEFAULT, Policy

from .evidence import LARGEST_CONTEXT_BYTES, Evidence
from .interval import NOTHING, Interval
from .message import Message

Kind = Literal[
    "impossible",
    "block limit",
    "spill",
    "cap",
    "other process",
    "full",
    "fragmentation",
    "leak",
    "first optimizer step",
    "evaluation peak",
    "checkpoint peak",
    "longest batch",
    "host memory",
    "unexplained",
    "undecided",
]
#: Requests of up to 1 MiB ask for a segment of 2 MiB (c10's kSmallBuffer), which holes of larger segments do not serve;
#: the next larger segment has 20 MiB, so that rounding does not matter here.
SMALL_SEGMENT_BYTES = 4 << 20
#: A fragmentation that ends with so small a share of the device to spare is a narrow one.
NARROW_SHARE = 0.005
#: A device with less than such a share free or idle is nearly full, where that is no more than so many requests.
NEARLY_FULL_SHARE, FEW_REQUESTS = 0.05, 4
#: Phases in which the peak is not the training step's.
_PEAKS: dict[str, Kind] = {"evaluation": "evaluation peak", "checkpoint": "checkpoint peak"}


@dataclass(frozen=True)
class Cause:
    """What it was; where undecided, all that it can be, the one the figures themselves say, and why no more is known.

    `possible` is empty where it can be nearly anything.
    `reason` is one of "rounding", "missing", "contradiction", "no figures" and "one message".
    """

    kind: Kind
    possible: tuple[Kind, ...]
    likely: Optional[Kind] = None
    reason: str = ""

    @property
    def certain(self) -> bool:
        """Whether it can be nothing else."""
        return self.kind != "undecided"


def find_cause(evidence: Evidence, policy: Policy = DEFAULT) -> Cause:
    """The cause of what `evidence` shows."""
    contradiction = contradicts(evidence)
    if contradiction:
        return Cause("undecided", (), None, "contradiction")
    if evidence.tried is None:
        return Cause("undecided", (), None, "no figures")
    cut_off_early = bool(evidence.unseen) and (evidence.total is None or evidence.free is None)
    if cut_off_early and not _impossible(evidence):
        return Cause("undecided", (), None, "missing")
    possible = tuple(dict.fromkeys(_possible(evidence, policy)))
    if len(possible) == 1:
        return Cause(possible[0], possible)
    if possible == ("leak", "full"):
        return Cause("undecided", possible, None, "one message")
    return Cause("undecided", possible, _likely(evidence, possible, policy), _why_undecided(evidence))


def cause_of(message: Message, evidence: Evidence, policy: Policy = DEFAULT) -> Cause:
    """The cause of a message: what its words alone say, else what its figures do."""
    stated: dict[str, Kind] = {
        "block limit": "block limit",
        "host": "host memory",
        "more than can be": "impossible",
    }
    kind = stated.get(message.format)
    return find_cause(evidence, policy) if kind is None else Cause(kind, (kind,))


def contradicts(evidence: Evidence) -> str:
    """What in the figures cannot be, in words; "" where nothing surely is so."""
    tried, total, free = evidence.tried, evidence.total, evidence.free
    if tried is not None and tried.high == 0:
        return "nothing was asked for"
    if total is not None and total.high == 0:
        return "the device has no memory"
    if total is not None and free is not None and free.above(total):
        return "more is free than the device has"
    if evidence.allocated is not None:
        if evidence.private is not None and evidence.private.above(evidence.allocated):
            return "private pools hold more than is allocated"
        if evidence.reserved is not None and evidence.allocated.above(evidence.reserved):
            return "more is allocated than reserved"
    return ""


def _possible(evidence: Evidence, policy: Policy) -> Iterator[Kind]:
    """Every kind that some figures within the bounds lead to, in the order of the rule."""
    steps: tuple[tuple[Kind, Callable[[Evidence], Optional[bool]]], ...] = (
        ("impossible", _impossible),
        ("spill", _spilled),
        ("cap", _capped),
        ("unexplained", _room_enough),
        ("other process", _others_hold_it),
    )
    for kind, holds in steps:
        answer = holds(evidence)
        if answer is not False:
            yield kind
        if answer:
            return
    yield from _full_or_fragmented(evidence, policy)


def _full_or_fragmented(evidence: Evidence, policy: Policy) -> Iterator[Kind]:
    if evidence.allocator == "metal":
        if evidence.allowed is None:
            yield "unexplained"  # no limit was set, and how much the system had left is not said
        yield from _full(evidence)
        return
    if _leaked(evidence):
        yield "leak"
        return
    fits = _fits_in_pieces(evidence)
    if fits and _state_outgrows(evidence):
        yield "first optimizer step"
        return
    if fits is False and evidence.in_pools:
        yield "fragmentation"
        return
    if fits is not True:
        yield from _full(evidence)
    if fits is False:
        return
    if fits and is_nearly_full(evidence):
        yield from _full(evidence)
        return
    small = _small_holes(evidence, policy)
    if small is not False:
        yield from _full(evidence) if evidence.live.growth_bytes_per_step else ("leak", "full")
    if small is not True:
        yield "fragmentation"


def _leaked(evidence: Evidence) -> bool:
    """Whether something grew to the end without which the request would have been served, in pieces or not."""
    live, tried, idle = evidence.live, evidence.tried, evidence.idle
    if not live.growth_bytes_per_step or tried is None:
        return False
    if live.grown_bytes is None:
        return _fits_in_pieces(evidence) is not True
    return live.grown_bytes > (tried.high if idle is None else min(tried.high, idle.high))


def _state_outgrows(evidence: Evidence) -> bool:
    """Whether the state that an optimizer was making would not have fitted in whatever pieces."""
    live, at_hand = evidence.live, evidence.at_hand
    if not live.first_optimizer_step or live.state_to_come_bytes is None or at_hand is None:
        return False
    return live.phase == "optimizer" and live.state_to_come_bytes > at_hand.high


def _full(evidence: Evidence) -> Iterator[Kind]:
    """Full; by what, where somebody watched."""
    live = evidence.live
    larger = live.larger_batch is not None and live.larger_batch.size > live.larger_batch.before
    if live.growth_bytes_per_step:
        yield "leak"
    elif live.first_optimizer_step and live.phase == "optimizer":
        yield "first optimizer step"
    elif live.phase in _PEAKS:
        yield _PEAKS[live.phase]
    elif live.evaluates:
        yield "evaluation peak"
    elif larger or live.outgrown is not None:
        yield "longest batch"
    else:
        yield "full"


def _impossible(evidence: Evidence) -> Optional[bool]:
    """Asked for more than the device has."""
    limit = evidence.allowed if evidence.allocator == "metal" else evidence.total
    return False if limit is None or evidence.tried is None else evidence.tried.above(limit)


def _spilled(evidence: Evidence) -> Optional[bool]:
    """PyTorch holds more than the device has: a driver has put the rest into the host's memory."""
    if evidence.total is None or evidence.allocator == "metal":
        return False
    held = [each for each in (evidence.allocated, evidence.reserved) if each is not None]
    answers = [each.above(evidence.total) for each in held]
    if True in answers:
        return True
    # A device from which memory is spilled has none left.
    scarce = evidence.free is None or evidence.free.low < evidence.total.high // 20
    return None if None in answers or (scarce and evidence.unseen & {"allocated", "idle"}) else False


def _capped(evidence: Evidence) -> Optional[bool]:
    """The request would have gone over what this process may have."""
    if evidence.allocator != "metal" and evidence.allowed is None and "allowed" in evidence.unseen:
        return None
    if evidence.allowed is None or evidence.tried is None or evidence.allocator == "metal":
        return False
    held = evidence.reserved or evidence.allocated
    return None if held is None else (held + evidence.tried).above(evidence.allowed)


def _room_enough(evidence: Evidence) -> Optional[bool]:
    """As much as was asked for was free, in one piece as far as the driver says."""
    if evidence.tried is None:
        return None
    if evidence.allocator == "metal":
        if evidence.allowed is None:
            return False
        if evidence.allocated is None:
            return None
        over = (evidence.allocated + (evidence.beside or NOTHING) + evidence.tried).above(evidence.allowed)
        return None if over is None else not over
    free = evidence.free_bounds
    return None if free is None else _not(evidence.tried.above(free))


def _others_hold_it(evidence: Evidence) -> Optional[bool]:
    """More is held by other processes than by this PyTorch, and with that it would have been served."""
    reserved, tried = evidence.reserved, evidence.tried
    if evidence.allocator == "metal" or reserved is None or tried is None:
        return None if "allocated" in evidence.unseen else False
    others = evidence.others
    if others is None:
        if evidence.own is not None or evidence.outside is None:
            return False
        # Who it is was not printed. More than a context takes is not this process's, as a rule.
        others = evidence.outside - Interval.exactly(LARGEST_CONTEXT_BYTES)
    if evidence.free is None:
        return others.above(reserved)
    return _both(others.above(reserved), _not(tried.above(others.at_least_nothing() + evidence.free)))


def _fits_in_pieces(evidence: Evidence) -> Optional[bool]:
    """Whether what is free and idle together would have been enough."""
    free, idle = evidence.free_bounds, evidence.idle
    if evidence.tried is None or free is None or idle is None:
        return None
    return _not(evidence.tried.above(free + idle))


def _small_holes(evidence: Evidence, policy: Policy) -> Optional[bool]:
    """A request that is smaller than any hole counts, on a device whose holes are no part worth a word."""
    tried, idle, total = evidence.tried, evidence.idle, evidence.total
    if tried is None or tried.low > SMALL_SEGMENT_BYTES:
        return False
    if idle is None or total is None:
        return None
    share = Interval(int(policy.holes_share * total.low), int(policy.holes_share * total.high))
    small = _not(tried.above(Interval.exactly(SMALL_SEGMENT_BYTES)))
    return _both(small, _not(idle.above(share)))


def _both(first: Optional[bool], second: Optional[bool]) -> Optional[bool]:
    if first is False or second is False:
        return False
    return True if first and second else None


def _not(answer: Optional[bool]) -> Optional[bool]:
    return None if answer is None else not answer


def _likely(evidence: Evidence, possible: tuple[Kind, ...], policy: Policy) -> Optional[Kind]:
    """What the figures say as they stand, or a cap that was set where nothing else is in the way."""
    if "cap" in possible and "unexplained" in possible and _room_enough(evidence):
        return "cap"
    shown = list(dict.fromkeys(_possible(_as_printed(evidence), policy)))
    return shown[0] if len(shown) == 1 and shown[0] in possible else None


def _as_printed(evidence: Evidence) -> Evidence:
    """With every interval at its middle, where it is one of rounding."""
    changed: dict[str, Any] = {}
    for each in fields(evidence):
        value = getattr(evidence, each.name)
        if isinstance(value, Interval) and value.high - value.low <= max(value.high // 10, 1 << 20):
            changed[each.name] = Interval.exactly(value.middle)
    return replace(evidence, **changed)


def _why_undecided(evidence: Evidence) -> str:
    """Whether a figure is missing, or too coarse."""
    if evidence.unseen:
        return "missing"
    needed = [evidence.tried, evidence.allocated, evidence.allowed if evidence.allocator == "metal" else evidence.free]
    if None in needed or (evidence.reserved is None and evidence.allocator != "metal"):
        return "missing"
    idle = evidence.idle
    wide = idle is not None and idle.high - idle.low > max(idle.high // 10, 64 << 20)
    return "missing" if wide else "rounding"


def is_narrow(evidence: Evidence) -> bool:
    """Whether what is free in pieces is hardly more than what was asked for."""
    if evidence.tried is None or evidence.at_hand is None or evidence.total is None:
        return False
    return evidence.at_hand.middle - evidence.tried.middle < NARROW_SHARE * evidence.total.middle


def is_nearly_full(evidence: Evidence) -> bool:
    """Whether what is free in pieces is little of the device, and would not have served many more requests.

    Only of what was watched: a message does not say what holds the rest.
    """
    tried, at_hand, total = evidence.tried, evidence.at_hand, evidence.total
    if not (evidence.watched or evidence.live.categories) or tried is None or at_hand is None or total is None:
        return False
    return at_hand.high < min(NEARLY_FULL_SHARE * total.low, FEW_REQUESTS * tried.low)


def short_by(evidence: Evidence) -> Optional[Interval]:
    """How much less would have been enough: what was asked for beyond what was free or idle."""
    if evidence.tried is None:
        return None
    if evidence.allocator == "metal":
        if evidence.allowed is None or evidence.allocated is None:
            return None
        return (
            evidence.allocated + (evidence.beside or NOTHING) + evidence.tried - evidence.allowed
        ).at_least_nothing()
    return None if evidence.at_hand is None else (evidence.tried - evidence.at_hand).at_least_nothing()
