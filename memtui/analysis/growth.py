"""Which categories grow from step to step, told apart from a warm-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from memtui.session.session import Session
from memtui.session.steps import step_number
from memtui.wire.frames import CATEGORIES, Classification

from . import units
from .policy import Policy


@dataclass(frozen=True)
class Leak:
    """What is allocated at the beginning of each forward grows without end."""

    bytes_per_step: float
    first_step: int
    last_step: int


def find_leak(session: Session, device: str, policy: Policy) -> Optional[Leak]:
    """A leak over the newest steps that were read, or None.

    Bytes and blocks must both grow, as a growing batch makes more bytes and not more blocks at a forward's beginning,
    and a warm-up rises and then stands still.
    """
    floors = list(session.floors(device))[-policy.growth_looks :]
    if len(floors) < policy.growth_looks:
        return None
    first, last = floors[0], floors[-1]
    grown = last.allocated_bytes - first.allocated_bytes
    if grown <= policy.growth_share * last.allocated_bytes or last.step <= first.step:
        return None
    blocks = [floor.num_blocks for floor in floors if floor.num_blocks is not None]
    if not _grows([floor.allocated_bytes for floor in floors]) or (len(blocks) == len(floors) and not _grows(blocks)):
        return None
    return Leak(grown / (last.step - first.step), first.step, last.step)


def growth_line(session: Session, device: str, policy: Policy) -> str:
    """What grows, in one line; empty while too few steps were looked at.

    Only looks at the same place of different steps are compared: within a step everything comes and goes. The forward's
    beginning is best, for gradients have gone by then and activations are not there yet. A category grows where it
    never fell and rose at every look but a few; a warm-up rises and then stands still, so the newest looks must rise
    too.
    """
    leak = find_leak(session, device, policy)
    said = []
    if leak is not None:
        size = units.size(round(leak.bytes_per_step))
        said.append(f"allocated grows {size} a step ({_steps(leak.first_step, leak.last_step)}, before each forward)")
    looks = _comparable(session.looks(device))[-policy.growth_looks :]
    if len(looks) < policy.growth_looks:
        return said[0] if said else ""
    first, last = looks[0], looks[-1]
    for name in CATEGORIES:
        grown = last.categories.get(name, 0) - first.categories.get(name, 0)
        if grown > policy.growth_share * last.allocated_bytes and _grows(
            [look.categories.get(name, 0) for look in looks]
        ):
            said.append(f"{name.replace('_', ' ')} +{units.size(grown)}")
    if said:
        return f"{', '.join(said)}; looked at in {_steps(first.step, last.step)}"
    return f"nothing grows: {_steps(first.step, last.step)} compared in {last.phase}"


def _steps(first: int, last: int) -> str:
    """Where so many were completed at the first look and at the last."""
    return f"steps {step_number(first):,} to {step_number(last):,}"


def _comparable(looks: tuple[tuple[Classification, int], ...]) -> list[Classification]:
    if not looks:
        return []
    phases = {look.phase for look, _ in looks}
    phase = "forward" if "forward" in phases else looks[-1][0].phase
    chosen: list[Classification] = []
    for look, _ in looks:
        # The first look of a phase is that at its beginning; later ones are anywhere in it.
        if look.phase == phase and not (chosen and chosen[-1].step == look.step):
            chosen.append(look)
    return chosen


def _grows(values: list[int]) -> bool:
    rises = [after - before for before, after in zip(values, values[1:])]
    newest = rises[-max(2, len(rises) // 3) :]
    return min(rises) >= 0 and sum(rise > 0 for rise in rises) >= 0.8 * len(rises) and all(rise > 0 for rise in newest)
