"""The size of each block of a step as a function of how large the batch is, from steps of several sizes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Optional

#: A size that is this near to a law follows it.
TOLERANCE_BYTES = 8
#: Laws of size that are tried for the scale of all the others, by the bytes that follow each.
_SCALES = 8


@dataclass(frozen=True)
class Law:
    """Bytes at a scale x, the largest recorded batch being 1: constant + linear x + square x².

    `told` where a recorded step more than the law has free numbers agrees with it.
    """

    constant: float = 0.0
    linear: float = 0.0
    square: float = 0.0
    told: bool = True

    def __call__(self, scale: float) -> int:
        """Bytes, at least 1."""
        return max(1, round(self.constant + self.linear * scale + self.square * scale * scale))

    def scale(self, size_bytes: int) -> Optional[float]:
        """Where it gives so many bytes; None where it does so nowhere, or everywhere."""
        missing = size_bytes - self.constant
        if not self.square:
            found = missing / self.linear if self.linear > 0 else 0.0
        else:
            inside = self.linear * self.linear + 4 * self.square * missing
            found = (math.sqrt(inside) - self.linear) / (2 * self.square) if inside > 0 and self.square > 0 else 0.0
        return found if found > 0 else None


def laws(sizes: Sequence[Sequence[int]], scales: Sequence[float]) -> tuple[Law, ...]:
    """A law for each block; `sizes` by step and block, the largest step last, `scales` by step."""
    known: dict[tuple[int, ...], Law] = {}
    found = []
    for values in zip(*sizes):
        law = known.get(values)
        if law is None:
            law = known[values] = _law(values, scales)
        found.append(law)
    return tuple(found)


def find_scales(sizes: Sequence[Sequence[int]]) -> Optional[tuple[float, ...]]:
    """How large each step's batch is, in parts of the last one; None where no block's size differs.

    Of the ways in which the sizes of blocks go from step to step, the one by which the laws tell most bytes.
    """
    weights: defaultdict[tuple[Fraction, ...], int] = defaultdict(int)
    for values in zip(*sizes):
        if min(values) > 0 and max(values) - min(values) > TOLERANCE_BYTES:
            weights[tuple(Fraction(value, values[-1]) for value in values)] += values[-1]
    tried = sorted(weights, key=lambda each: -weights[each])[:_SCALES]
    rising = [tuple(map(float, each)) for each in tried if all(a < b for a, b in zip(each, each[1:]))]
    return max(rising, key=lambda each: _told_bytes(sizes, each), default=None)


def _told_bytes(sizes: Sequence[Sequence[int]], scales: Sequence[float]) -> int:
    return sum(size for size, law in zip(sizes[-1], laws(sizes, scales)) if law.told)


def _law(values: Sequence[int], scales: Sequence[float]) -> Law:
    """The law with the fewest free numbers that the values follow, else a straight line that is not told."""
    first, last = values[0], values[-1]
    if max(values) - min(values) <= TOLERANCE_BYTES:
        return Law(constant=last)
    slope = (last - first) / (scales[-1] - scales[0])
    line = Law(constant=last - slope * scales[-1], linear=slope)
    for law in (Law(linear=last / scales[-1]), Law(square=last / scales[-1] ** 2)):
        if _follow(values, scales, law):
            return law
    if len(values) > 2 and _follow(values, scales, line):
        return line
    if len(values) > 3:
        curve = _curve(values, scales)
        if curve.square > 0 and _follow(values, scales, curve):
            return curve
    return Law(line.constant, line.linear, told=False) if slope > 0 else Law(max(values), told=False)


def _curve(values: Sequence[int], scales: Sequence[float]) -> Law:
    """Through the first, a middle and the last value."""
    middle = len(values) // 2
    (x0, y0), (x1, y1), (x2, y2) = ((scales[place], values[place]) for place in (0, middle, -1))
    first, second = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    square = (second - first) / (x2 - x0)
    linear = first - square * (x0 + x1)
    return Law(y0 - linear * x0 - square * x0 * x0, linear, square)


def _follow(values: Sequence[int], scales: Sequence[float], law: Law) -> bool:
    return all(abs(law(scale) - value) <= TOLERANCE_BYTES for value, scale in zip(values, scales))
