"""Which categories grow from step to step, told apart from a warm-up."""

from __future__ import annotations

from memtui.session.session import Session
from memtui.wire.frames import CATEGORIES, Classification

from . import units
from .policy import Policy


def growth_line(session: Session, device: str, policy: Policy) -> str:
    """What grows, in one line; empty while too few steps were looked at.

    Only looks at the same place of different steps are compared: within a step everything comes and goes. The forward's
    beginning is best, for gradients have gone by then and activations are not there yet. A category
    grows where it never fell and rose at every look but a few; a warm-up rises and then stands still, so the newest
    looks must rise too.
    """
    looks = _comparable(session.looks(device))
    if len(looks) < policy.growth_looks:
        return ""
    looks = looks[-policy.growth_looks :]
    first, last = looks[0], looks[-1]
    names = [name for name in CATEGORIES if name in last.categories]
    growing = [name for name in names if _grows([look.categories.get(name, 0) for look in looks])]
    steps = last.step - first.step
    if not growing:
        return f"nothing grows: steps {first.step:,} to {last.step:,} compared in {last.phase}"
    said = []
    for name in growing:
        grown = last.categories.get(name, 0) - first.categories.get(name, 0)
        said.append(f"{name.replace('_', ' ')} +{units.size(grown)}")
    return f"{', '.join(said)} over the last {steps:,} steps, at every look; the rest does not grow"


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
