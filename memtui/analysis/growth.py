"""What grows from step to step: a leak, told apart from a warm-up, longer batches and logs that are cleared."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from memtui.session.floors import Floor, Floors
from memtui.session.session import Session
from memtui.session.steps import step_number
from memtui.wire.frames import CATEGORIES, Classification

from . import units
from .policy import Policy
from .trend import rate_between_halves, slope, steady_rise

#: The newest floors must still rise at this share of a longer window's rate.
_GOES_ON = 0.5
#: A rise must be this many times what was ever given back.
_BEYOND, _BEYOND_IN_HASTE = 1.5, 3
#: Floors of a thinned level that are enough to be judged.
_FEWEST_THINNED = 12
_NS = 1_000_000_000


@dataclass(frozen=True)
class Leak:
    """What is allocated at the beginning of each forward grows without end.

    Bytes a step, with their 95 % interval; steps by how many were completed. When the device will be full is predicted
    by this rate from the headroom that the forecast leaves; None where that is unknown.
    """

    bytes_per_step: float
    low: float
    high: float
    first_step: int
    last_step: int
    blocks_per_step: Optional[float] = None  # None where the allocator counts no blocks
    steps_to_full: Optional[int] = None
    seconds_to_full: Optional[float] = None

    def fills_soon(self, policy: Policy) -> bool:
        """Whether the device will be full within the policy's horizon."""
        if self.steps_to_full is None or self.seconds_to_full is None:
            return False
        return self.steps_to_full < policy.growth_steps or self.seconds_to_full < policy.growth_ns / _NS


def find_leak(floors: Optional[Floors], headroom_bytes: Optional[int], policy: Policy) -> Optional[Leak]:
    """A leak that goes on, or None; O(floors kept).

    The number of blocks must rise evenly up to the newest step, and by more than was ever given back: a warm-up rises
    less and less, an evaluation leaves something once, noise and a log that is cleared come down again, and a longer
    batch makes larger blocks, not more of them. Bytes must surely rise with them. Where blocks are not counted, bytes
    must do all that. What is found is told over the stretch that tells its slope best.
    """
    if floors is None or len(floors.levels[0]) < policy.leak_floors:
        return None
    newest = list(floors.levels[0])
    steps = [floor.step for floor in newest]
    patient = bisect.bisect_right(steps, steps[-1] - policy.leak_steps)  # so many begin at least leak_steps ago
    if patient:
        shortest = newest[min(patient - 1, len(newest) - policy.leak_floors) :]
        thinned = ((window, None) for window in _thinned(floors))
        windows = (*thinned, *((window, shortest) for window in _windows(newest, len(shortest))))
        found = [_leak_in(window, end, floors, headroom_bytes, policy) for window, end in windows]
        leaks = [leak for leak in found if leak is not None]
        if leaks:
            return min(leaks, key=lambda leak: (leak.high - leak.low) / leak.bytes_per_step)
    # One that fills the device within as many steps as it was seen for leaves no time for patience.
    hasty = newest[-2 * policy.leak_floors :]
    if len(hasty) < 2 * policy.leak_floors:
        return None
    leak = _leak_in(hasty, hasty, floors, headroom_bytes, policy, _BEYOND_IN_HASTE)
    if leak is None or leak.steps_to_full is None or leak.steps_to_full > leak.last_step - leak.first_step:
        return None
    return leak


def _thinned(floors: Floors) -> Iterator[Sequence[Floor]]:
    """Windows that reach further back than the newest floors do, the longest first."""
    newest = floors.levels[0][-1]
    for level in reversed(floors.levels[1:]):
        if len(level) >= _FEWEST_THINNED and level[0] is not floors.levels[0][0]:
            held = list(level) if level[-1] is newest else [*level, newest]
            yield from _windows(held, _FEWEST_THINNED)


def _windows(floors: Sequence[Floor], fewest: int) -> Iterator[Sequence[Floor]]:
    """The last `fewest` floors, and longer windows before them, the longest first."""
    count = len(floors)
    while count > fewest:
        yield floors[-count:]
        count = 2 * count // 3
    yield floors[-fewest:]


def _leak_in(
    window: Sequence[Floor],
    end: Optional[Sequence[Floor]],
    floors: Floors,
    headroom: Optional[int],
    policy: Policy,
    beyond: float = _BEYOND,
) -> Optional[Leak]:
    """The leak in `window`; its `end`, where that is given, must still rise by itself."""
    first, last = window[0], window[-1]
    counted = all(floor.num_blocks is not None for floor in (first, last))
    given_back = (floors.blocks_given_back if counted else floors.bytes_given_back).most
    if _judged(last, counted) - _judged(first, counted) <= given_back:
        return None
    steps = [floor.step for floor in window]
    judged = [_judged(floor, counted) for floor in window]
    rise = steady_rise(steps, judged)
    if rise <= beyond * given_back:
        return None
    if end is not None:
        recent = rate_between_halves([floor.step for floor in end], [_judged(floor, counted) for floor in end])
        if recent < _GOES_ON * rise / (last.step - first.step):
            return None
    sizes = slope(steps, [floor.allocated_bytes for floor in window], policy.leak_sure)
    if sizes.surely <= 0:
        return None
    left = None if headroom is None or headroom < 0 else round(headroom / sizes.middle)
    step_seconds = (last.time_ns - first.time_ns) / _NS / (last.step - first.step)
    return Leak(
        sizes.middle,
        sizes.low,
        sizes.high,
        first.step,
        last.step,
        slope(steps, judged, policy.leak_sure).middle if counted else None,
        left,
        None if left is None else left * step_seconds,
    )


def _judged(floor: Floor, counted: bool) -> int:
    return (floor.num_blocks or 0) if counted else floor.allocated_bytes


def leak_text(leak: Leak) -> str:
    """A leak in words: "grows 1.2 MiB a step (1.1 to 1.3, steps 40 to 260): full in about 9,000 steps, 2 h 10 m"."""
    low, high = (max(0, round(bound)) for bound in (leak.low, leak.high))
    between = "" if units.size(low) == units.size(high) else f"{_between(low, high)}, "
    return f"{rate_text(leak)} ({between}{_steps(leak.first_step, leak.last_step)}){full_text(leak)}"


def rate_text(leak: Leak) -> str:
    """ "grows 1.2 MiB a step"."""
    return f"grows {units.size(round(leak.bytes_per_step))} a step"


def full_text(leak: Leak) -> str:
    """ ": full in about 9,000 steps, 2 h 10 m"; empty where that is not known."""
    if leak.steps_to_full is None or leak.seconds_to_full is None:
        return ""
    return (
        f": full in about {_rounded(leak.steps_to_full):,} steps, {units.duration(round(leak.seconds_to_full * _NS))}"
    )


def _between(low: int, high: int) -> str:
    unit = units.unit_of(high)
    if units.unit_of(low) != unit:
        return f"{units.size(low)} to {units.size(high)}"
    return f"{units.number(low, unit)} to {units.number(high, unit)}"


def _rounded(count: int) -> int:
    """To two figures: a prediction is no better."""
    return round(count, 2 - len(str(count)))


def growth_line(session: Session, device: str, leak: Optional[Leak], policy: Policy) -> str:
    """What grows, in one line; empty while too few steps were looked at.

    Only looks at the same place of different steps are compared: within a step everything comes and goes. The forward's
    beginning is best, for gradients have gone by then and activations are not there yet. A category grows where it
    never fell and rose at every look but a few; a warm-up rises and then stands still, so the newest looks must rise
    too.
    """
    said = [] if leak is None else [f"allocated {leak_text(leak)}"]
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
        said.append(f"{', '.join(grown)}; looked at in {_steps(first.step, last.step)}")
    return "; ".join(said) or f"nothing grows: {_steps(first.step, last.step)} compared in {last.phase}"


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
