"""The lowest and highest of many figures in each of some columns, however far a picture is zoomed out or in."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

_STEP = 16


class Pyramid:
    """Lowest and highest of each 16, 256, … figures: an eighth of their memory, and a column costs some 100 looks."""

    def __init__(self, figures: Sequence[int]) -> None:
        self._levels: list[tuple[Sequence[int], Sequence[int]]] = [(figures, figures)]
        while len(self._levels[-1][0]) > _STEP:
            low, high = self._levels[-1]
            places = range(0, len(low), _STEP)
            self._levels.append(
                (
                    array("q", [min(low[place : place + _STEP]) for place in places]),
                    array("q", [max(high[place : place + _STEP]) for place in places]),
                )
            )

    def range(self, begin: int, end: int) -> tuple[int, int]:
        """The lowest and the highest of the figures from `begin` up to, not including, `end`; some there must be."""
        lows: list[int] = []
        highs: list[int] = []
        level = 0
        while begin < end:
            low, high = self._levels[level]
            if level + 1 == len(self._levels) or end - begin < 2 * _STEP:
                lows += low[begin:end]
                highs += high[begin:end]
                break
            inner_begin, inner_end = -(-begin // _STEP), end // _STEP
            for outer in (slice(begin, inner_begin * _STEP), slice(inner_end * _STEP, end)):
                lows += low[outer]
                highs += high[outer]
            begin, end, level = inner_begin, inner_end, level + 1
        return min(lows), max(highs)

    def columns(self, begin: int, end: int, count: int) -> list[tuple[int, int]]:
        """`count` columns of the figures from `begin` to `end`; fewer figures than columns stand in several."""
        length = end - begin
        found = []
        for column in range(count):
            first = begin + length * column // count
            found.append(self.range(first, max(begin + length * (column + 1) // count, first + 1)))
        return found
