"""What grows from step to step, in one line: a leak, and categories."""

from __future__ import annotations

from typing import Optional

from memtui.session.session import Session
from memtui.wire.frames import CATEGORIES, Classification

from . import units
from .leak import Leak, larger_text, leak_text, steps_text
from .policy import Policy


def growth_line(session: Session, device: str, leak: Optional[Leak], larger: Optional[Leak], policy: Policy) -> str:
    """What grows, in one line; empty while too few steps were looked at.

    Only looks at the same place of different steps are compared: within a step everything comes and goes. The forward's
    beginning is best, for gradients have gone by then and activations are not there yet. A category grows where it
    never fell and rose at every look but a few; a warm-up rises and then stands still, so the newest looks must rise
    too.
    """
    said = []
    if leak is not None:
        said.append(f"allocated {leak_text(leak)}")
    elif larger is not None:
        said.append(f"allocated {larger_text(larger)}")
    looks = _comparable(session.looks(device))[-policy.growth_looks :]
    if len(looks) < policy.growth_looks:
        return said[0] if said else ""
    first, last = looks[0], looks[-1]
    grown = [
        f"{name.replace('_', ' ')} +{units.size(last.categories.get(name, 0) - first.categories.get(name, 0))}"
        for name in CATEGORIES
        if last.categories.get(name, 0) - first.categories.get(name, 0) > policy.growth_share * last.allocated_bytes
        and _grows([look.categories.get(name, 0) for look in looks])
    ]
    if grown:
        said.append(f"{', '.join(grown)}; looked at in {steps_text(first.step, last.step)}")
    return "; ".join(said) or f"nothing grows: {steps_text(first.step, last.step)} compared in {last.phase}"


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
