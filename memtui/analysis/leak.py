"""A leak: what grows from step to step without end, told apart from a warm-up, longer batches and cleared logs."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from memtui.session.floors import Floor, Floors
from memtui.session.steps import step_number

from . import units
from .policy import Policy
from .trend import rate_between_halves, slope, steady_rise

#: The newest floors must still rise at this share of a longer window's rate.
_GOES_ON = 0.5
#: A rise must be this many times what was ever given back; a leak that is told in haste more.
_BEYOND, _BEYOND_IN_HASTE = 1.25, 3
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
    """A leak that goes on, or None; some µs where nothing rises, a few ms where something does.

    The number of blocks must rise evenly up to the newest step, and by more than was ever given back: a warm-up rises
    less and less, an evaluation leaves something once, noise and a log that is cleared come down again, and a longer
    batch makes larger blocks, not more of them. Bytes must surely rise with them. Where blocks are not counted, bytes
    must do all that. What is found is told over the stretch that tells its slope best.
    """
    if floors is None or len(floors.levels[0]) < policy.leak_floors:
        return None
    return _Search(floors, headroom_bytes, policy, by_blocks=floors.levels[0][-1].num_blocks is not None).leak()


def find_larger(floors: Optional[Floors], policy: Policy) -> Optional[Leak]:
    """What rises as a leak does but in bytes alone, in as many blocks: a batch, or a tensor that is made anew; or None.

    It is not known which of the two it is, nor where it ends.
    """
    if floors is None or len(floors.levels[0]) < policy.leak_floors:
        return None
    newest = floors.levels[0][-1]
    found = None if newest.num_blocks is None else _Search(floors, None, policy, by_blocks=False).leak()
    if found is None:
        return None
    [first, *_] = (floor for level in floors.levels for floor in level if floor.step == found.first_step)
    return replace(found, blocks_per_step=0.0) if first.num_blocks == newest.num_blocks else None


@dataclass(frozen=True)
class _Rise:
    """What rises evenly, and whether bytes surely rise with it."""

    leak: Leak
    sure: bool

    @property
    def sure_leak(self) -> Optional[Leak]:
        """The leak, if it is one."""
        return self.leak if self.sure else None


class _Search:
    """One search for a leak that ends at the newest floor."""

    def __init__(self, floors: Floors, headroom_bytes: Optional[int], policy: Policy, *, by_blocks: bool) -> None:
        self._floors, self._headroom_bytes, self._policy = floors, headroom_bytes, policy
        self._newest = floors.levels[0][-1]
        self._by_blocks = by_blocks
        self._given_back = (floors.blocks_given_back if self._by_blocks else floors.bytes_given_back).most

    def leak(self) -> Optional[Leak]:
        """The leak."""
        found = list(self._patiently())
        if found:
            # Their slopes are not chosen by being large: where bytes do not surely rise in the best, they do in none.
            return min(found, key=lambda each: each.leak.high - each.leak.low).sure_leak
        # One that fills the device within half as many steps as it was seen for leaves no time for patience.
        newest = self._floors.levels[0]
        count = 2 * self._policy.leak_floors
        rise = self._rise(self._window(newest, count), _BEYOND_IN_HASTE) if len(newest) >= count else None
        leak = None if rise is None else rise.sure_leak
        if leak is None or leak.steps_to_full is None or 2 * leak.steps_to_full > leak.last_step - leak.first_step:
            return None
        return leak

    def _patiently(self) -> Iterator[_Rise]:
        """Windows of at least leak_steps steps and leak_floors floors, the longest first, with what rises in them."""
        newest, *thinned = self._floors.levels
        fewest = self._fewest()
        if fewest is None:
            return
        for level in reversed(thinned):
            if len(level) >= _FEWEST_THINNED and level[0] is not newest[0]:
                for count in _counts(len(level), _FEWEST_THINNED):
                    rise = self._rise(self._window(level, count), _BEYOND)
                    if rise is not None:
                        yield rise
        shortest: Sequence[Floor] = ()
        for count in _counts(len(newest), fewest):
            window = self._window(newest, count)
            if window:
                shortest = shortest or self._last(newest, fewest)
                rise = self._rise(window, _BEYOND, shortest)
                if rise is not None:
                    yield rise

    def _fewest(self) -> Optional[int]:
        """How many of the newest floors reach back over leak_steps, but leak_floors at least; None where none do."""
        newest = self._floors.levels[0]
        latest = self._newest.step - self._policy.leak_steps
        low, high = 0, len(newest)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if newest[middle].step <= latest else (low, middle)
        return max(len(newest) - low + 1, self._policy.leak_floors) if low else None

    def _window(self, level: deque[Floor], count: int) -> Sequence[Floor]:
        """The last `count` floors of a level, up to the newest; none where they rise by too little to look closer."""
        first = level[-count]
        if self._judged(self._newest) - self._judged(first) <= self._given_back:
            return ()
        return self._last(level, count)

    def _last(self, level: deque[Floor], count: int) -> Sequence[Floor]:
        window = list(itertools.islice(level, len(level) - count, None))
        return window if window[-1] is self._newest else [*window, self._newest]

    def _rise(self, window: Sequence[Floor], beyond: float, end: Sequence[Floor] = ()) -> Optional[_Rise]:
        """What rises evenly in `window`; its `end`, where that is given, must still rise by itself."""
        if not window:
            return None
        first, last = window[0], window[-1]
        steps = [floor.step for floor in window]
        rise = steady_rise(steps, [self._judged(floor) for floor in window])
        if rise <= beyond * self._given_back:
            return None
        rate = rise / (last.step - first.step)
        if end:
            recent = rate_between_halves([floor.step for floor in end], [self._judged(floor) for floor in end])
            if recent < _GOES_ON * rate:
                return None
        sizes = slope(steps, [floor.allocated_bytes for floor in window], self._policy.leak_sure)
        left = None
        if self._headroom_bytes is not None and self._headroom_bytes >= 0 and sizes.middle > 0:
            left = round(self._headroom_bytes / sizes.middle)
        step_seconds = (last.time_ns - first.time_ns) / _NS / (last.step - first.step)
        leak = Leak(
            sizes.middle,
            sizes.low,
            sizes.high,
            first.step,
            last.step,
            rate if self._by_blocks else None,
            left,
            None if left is None else left * step_seconds,
        )
        return _Rise(leak, sizes.surely > 0)

    def _judged(self, floor: Floor) -> int:
        """What must rise evenly."""
        return (floor.num_blocks or 0) if self._by_blocks else floor.allocated_bytes


def _counts(most: int, fewest: int) -> Iterator[int]:
    """From the most to the fewest, each three quarters of the one before."""
    while most > fewest:
        yield most
        most = 3 * most // 4
    yield fewest


def leak_text(leak: Leak) -> str:
    """A leak in words: "grows 1.2 MiB a step (1.1 to 1.3, steps 40 to 260): full in about 9,000 steps, 2 h 10 m"."""
    low, high = (max(0, round(bound)) for bound in (leak.low, leak.high))
    between = "" if units.size(low) == units.size(high) else f"{_between(low, high)}, "
    return f"{rate_text(leak)} ({between}{steps_text(leak.first_step, leak.last_step)}){full_text(leak)}"


def larger_text(larger: Leak) -> str:
    """ "grows 1.2 MiB a step (…) in as many blocks: longer batches, or a tensor that is made anew, larger"."""
    return f"{leak_text(larger)} in as many blocks: longer batches, or a tensor that is made anew, larger"


def rate_text(leak: Leak) -> str:
    """ "grows 1.2 MiB a step"."""
    return f"grows {units.size(round(leak.bytes_per_step))} a step"


def full_text(leak: Leak) -> str:
    """ ": full in about 9,000 steps, 2 h 10 m"; empty where that is not known."""
    if leak.steps_to_full is None or leak.seconds_to_full is None:
        return ""
    left = units.duration(round(leak.seconds_to_full * _NS))
    return f": full in about {_rounded(leak.steps_to_full):,} steps, {left}"


def steps_text(first: int, last: int) -> str:
    """The steps under way when so many were completed at first and at last."""
    return f"steps {step_number(first):,} to {step_number(last):,}"


def _between(low: int, high: int) -> str:
    unit = units.unit_of(high)
    if units.unit_of(low) != unit:
        return f"{units.size(low)} to {units.size(high)}"
    return f"{units.number(low, unit)} to {units.number(high, unit)}"


def _rounded(count: int) -> int:
    """To two figures: a prediction is no better."""
    return round(count, 2 - len(str(count)))
