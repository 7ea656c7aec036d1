"""Stretches of addresses."""

from __future__ import annotations

import bisect
from collections.abc import Iterable


class Ranges:
    """Addresses that have memory, as stretches; those that touch are one."""

    def __init__(self, stretches: Iterable[tuple[int, int]] = ()) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        for address, length in stretches:
            self.add(address, length)

    def add(self, address: int, length: int) -> None:
        """Memory comes."""
        end = address + length
        first = bisect.bisect_left(self._ends, address)
        last = bisect.bisect_right(self._begins, end)
        if first < last:
            address = min(address, self._begins[first])
            end = max(end, self._ends[last - 1])
        self._begins[first:last] = [address]
        self._ends[first:last] = [end]

    def remove(self, address: int, length: int) -> None:
        """Memory goes; where there was none, nothing happens."""
        end = address + length
        first = bisect.bisect_right(self._ends, address)
        last = bisect.bisect_left(self._begins, end)
        if first >= last:
            return
        left, right = (self._begins[first], address), (end, self._ends[last - 1])
        kept = [(begin, stop) for begin, stop in (left, right) if begin < stop]
        self._begins[first:last] = [begin for begin, _ in kept]
        self._ends[first:last] = [stop for _, stop in kept]

    def stretches(self) -> list[tuple[int, int]]:
        """(address, length) in the order of addresses."""
        return [(begin, end - begin) for begin, end in zip(self._begins, self._ends)]
