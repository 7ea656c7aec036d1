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
#: Of a size that is rounded up, a quantum is at most this part of the largest: with more, anything would follow.
_QUANTUM = 1 / 16
#: Where a product comes out a little above a whole number of quantums, it is that number.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Law:
    """Bytes at a scale x, the largest recorded batch being 1: constant + linear x + square x², in whole `quantum`s.

    `doubt` is the part of it that may be wrong: none where a recorded step more than the law has free numbers agrees
    with it, all where none does; of what is rounded up, the last quantum.
    """

    constant: float = 0.0
    linear: float = 0.0
    square: float = 0.0
    quantum: int = 1
    doubt: float = 0.0

    def __call__(self, scale: float) -> int:
        """Bytes, at least 1."""
        exact = self.constant + self.linear * scale + self.square * scale * scale
        whole = round(exact) if self.quantum == 1 else math.ceil(exact / self.quantum - _ROUNDING) * self.quantum
        return max(1, whole)

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

    Of the ways in which the sizes of blocks go from step to step, the one by which the laws leave least in doubt.
    """
    weights: defaultdict[tuple[Fraction, ...], int] = defaultdict(int)
    for values in zip(*sizes):
        if min(values) > 0 and max(values) - min(values) > TOLERANCE_BYTES:
            weights[tuple(Fraction(value, values[-1]) for value in values)] += values[-1]
    tried = sorted(weights, key=lambda each: -weights[each])[:_SCALES]
    rising = [tuple(map(float, each)) for each in tried if all(a < b for a, b in zip(each, each[1:]))]
    return min(rising, key=lambda each: _doubtful_bytes(sizes, each), default=None)


def _doubtful_bytes(sizes: Sequence[Sequence[int]], scales: Sequence[float]) -> float:
    return sum(size * law.doubt for size, law in zip(sizes[-1], laws(sizes, scales)))


def _law(values: Sequence[int], scales: Sequence[float]) -> Law:
    """The law with the fewest free numbers that the values follow, else a straight line in doubt."""
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
    rounded = _rounded_up(values, scales)
    if rounded is not None:
        return rounded
    return Law(line.constant, line.linear, doubt=1.0) if slope > 0 else Law(max(values), doubt=1.0)


def _rounded_up(values: Sequence[int], scales: Sequence[float]) -> Optional[Law]:
    """What grows with the batch and is rounded up to a multiple, as kernels have it that work in tiles."""
    quantum = math.gcd(*values)
    least = max((value - quantum) / scale for value, scale in zip(values, scales))
    most = min(value / scale for value, scale in zip(values, scales))
    if quantum > _QUANTUM * values[-1] or least >= most:
        return None
    return Law(linear=most, quantum=quantum, doubt=quantum / values[-1])


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
