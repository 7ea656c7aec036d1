"""What a recorded step comes to when it is done again and again: the steady peaks, and a request that would fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from memtui.session.steps import step_number
from memtui.wire.frames import RecordedStep

from . import units
from .allocator.replay import Failure, Replayed
from .view import Kind


@dataclass(frozen=True)
class Steady:
    """Peaks of live tensors and of segments, of one device. `growth_bytes` is what each step leaves behind.

    Predicted where every address of the recorded step was found again and it goes on like that; else a lower bound.
    """

    allocated_bytes: int
    reserved_bytes: int
    kind: Kind
    growth_bytes: int
    failure: Optional[Failure]
    basis: str


def steady(recorded: RecordedStep, replayed: Replayed) -> Steady:
    """The peaks, and what they rest on."""
    certain = replayed.exact and replayed.steady
    parts = [f"step {step_number(recorded.step):,} done again by the allocator's rules"]
    if not replayed.exact:
        parts.append(f"{replayed.same_place:,} of its {replayed.compared:,} allocations where they were")
    if not replayed.steady and replayed.failure is None:
        parts.append(f"still rising after {len(replayed.steps)} steps")
    return Steady(
        replayed.peak_allocated_bytes,
        replayed.peak_reserved_bytes,
        "predicted" if certain else "lower_bound",
        replayed.growth_bytes,
        replayed.failure,
        ", ".join(parts),
    )


def steady_lines(found: Steady) -> tuple[str, ...]:
    """The same in words, each line one fact."""
    bound = "" if found.kind == "predicted" else "≥ "
    lines = [f"peak reserved {bound}{units.size(found.reserved_bytes)} predicted: {found.basis}"]
    if found.growth_bytes:
        lines.append(f"each step leaves {units.size(found.growth_bytes)} more behind")
    failure = found.failure
    if failure is not None:
        when = "in the next step" if failure.step == 1 else f"in {failure.step} steps"
        line = f"a request of {units.size(failure.asked_bytes)} would fail {when}"
        if failure.scattered:
            line += f", though {units.size(failure.free_bytes)} would be free: in pieces, none of them large enough"
        lines.append(line)
    return tuple(lines)
