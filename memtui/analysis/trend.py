"""The slope of a line through values, and whether they lie along one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: More points than these add time and no precision worth it.
_POINTS = 40
_CONFIDENCE = 1.96  # 95 % of a normal distribution
#: A third's own rate against the whole's: less at the end is a warm-up, less at the beginning started later.
_LEAST_OF_RATE = 0.6
#: How far from the line nine of ten values may be, or all where they are few, of the rise: a staircase of five has 0.1.
_OFF_LINE, _FEW = 0.12, 12
#: … and the eighth of the values at each end on average: what has stopped, or began late, is flat there.
_OFF_LINE_AT_ENDS = 0.08


@dataclass(frozen=True)
class Slope:
    """The middle of all slopes between two points, with its 95 % interval, and what is surely exceeded.

    Theil and Sen's estimate with Kendall's interval (P. K. Sen, 1968): half of the points may be wrong by any amount.
    """

    middle: float
    low: float
    high: float
    surely: float


def slope(places: Sequence[int], values: Sequence[int], sure: float) -> Slope:
    """The slope of `values` over rising `places`; `sure` is how many standard deviations "surely" means."""
    stride = math.ceil(len(places) / _POINTS)
    # From the newest backwards: it is the one that matters.
    xs, ys = places[::-1][::stride], values[::-1][::stride]
    count = len(xs)
    slopes = sorted(
        (ys[first] - ys[second]) / (xs[first] - xs[second]) for first in range(count) for second in range(first)
    )
    pairs = len(slopes)
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)

    def at(standard_deviations: float) -> float:
        place = round((pairs - 1 + standard_deviations * deviation) / 2)
        return slopes[min(max(place, 0), pairs - 1)]

    middle = (slopes[(pairs - 1) // 2] + slopes[pairs // 2]) / 2
    return Slope(middle, at(-_CONFIDENCE), at(_CONFIDENCE), at(-sure))


def steady_rise(places: Sequence[int], values: Sequence[int]) -> float:
    """By how much `values` rise from the first place to the last where they do so evenly all along; else 0.

    Evenly is at about the same rate in each third, and near a line, above all at its ends.
    """
    third = len(values) // 3
    if third < 2 or values[-1] <= values[0]:
        return 0
    parts = (slice(third), slice(third, -third), slice(-third, None))
    (x1, x2, x3), (y1, y2, y3) = ([_mean(each[part]) for part in parts] for each in (places, values))
    rate = (y3 - y1) / (x3 - x1)
    least = _LEAST_OF_RATE * rate
    if rate <= 0 or (y2 - y1) < least * (x2 - x1) or (y3 - y2) < least * (x3 - x2):
        return 0
    rise = rate * (places[-1] - places[0])
    x0, y0 = _mean(places), _mean(values)
    off = [y - y0 - rate * (x - x0) for x, y in zip(places, values)]
    far = sorted(map(abs, off))
    if len(values) < _FEW:
        return rise if far[-1] <= _OFF_LINE * rise else 0
    end = max(3, len(off) // 8)
    at_ends = max(_mean(off[:end]), -_mean(off[-end:]))
    if far[math.ceil(0.9 * len(off)) - 1] > _OFF_LINE * rise or at_ends > _OFF_LINE_AT_ENDS * rise:
        return 0
    return rise


def rate_between_halves(places: Sequence[int], values: Sequence[int]) -> float:
    """The rate from the middle of the first half to the middle of the second."""
    half = len(values) // 2
    return (_mean(values[-half:]) - _mean(values[:half])) / (_mean(places[-half:]) - _mean(places[:half]))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
