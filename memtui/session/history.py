"""Series of bytes over time that keep every spike however far the chart zooms out."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence
from typing import Optional

#: Each level's buckets are this many of the level below; so a window of any width needs few of them.
FANOUT = 8
#: A ring of the newest samples at full rate (27 minutes at 10 Hz), and as many buckets on each coarser level.
CAPACITY = 16_384
LEVELS = 6


class Series:
    """One figure over time: a ring of samples plus min/max buckets on coarser levels.

    Times are monotonic nanoseconds, values bytes. `append` is O(1); `window` is O(columns).
    """

    def __init__(self, capacity: int = CAPACITY, levels: int = LEVELS) -> None:
        self.capacity = capacity
        self._levels = [_Level(capacity) for _ in range(levels)]
        self.last_time_ns: Optional[int] = None
        self.last_value: Optional[int] = None

    def append(self, time_ns: int, value: int) -> None:
        """Adds a sample; one that is older than the newest is ignored (a history sent twice)."""
        if self.last_time_ns is not None and time_ns <= self.last_time_ns:
            return
        self.last_time_ns, self.last_value = time_ns, value
        low = high = value
        start = end = time_ns
        for level in self._levels:
            level.push(start, end, low, high)
            group = level.take_group()
            if group is None:
                return
            start, end, low, high = group

    def __len__(self) -> int:
        return len(self._levels[0].times)

    @property
    def first_time_ns(self) -> Optional[int]:
        """When the oldest sample still held (on any level) was taken; None while empty."""
        starts = [level.times[0] for level in self._levels if level.times]
        return min(starts) if starts else None

    def window(self, start_ns: int, end_ns: int, columns: int) -> list[Optional[tuple[int, int]]]:
        """(min, max) for each of `columns` equal pieces of [start, end), None where there is no sample.

        Every sample inside the window is in the bucket of its column, so no spike is lost at any zoom.
        """
        width = max(1, end_ns - start_ns)
        result: list[Optional[tuple[int, int]]] = [None] * columns
        covered_from: Optional[int] = None
        # The newest part comes from the finest level whose buckets are not narrower than needed; what that level has
        # forgotten comes from the next.
        step = width / max(1, columns)
        for level in self._levels:
            if not level.times:
                continue
            if level.mean_width_ns() * FANOUT <= step and level is not self._levels[-1] and level.full_groups():
                continue
            upto = end_ns if covered_from is None else covered_from
            first = level.add_to(result, start_ns, upto, width, columns)
            if first is not None and (covered_from is None or first < covered_from):
                covered_from = first
            if covered_from is not None and covered_from <= start_ns:
                break
        self._add_tail(result, start_ns, end_ns, width, columns)
        return result

    def _add_tail(
        self, result: list[Optional[tuple[int, int]]], start_ns: int, end_ns: int, width: int, columns: int
    ) -> None:
        # Samples not yet folded into a coarser bucket are few: at most FANOUT a level.
        for level in self._levels:
            level.add_open(result, start_ns, end_ns, width, columns)


class _Level:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.times: array[int] = array("q")
        self.ends: array[int] = array("q")
        self.lows: array[int] = array("q")
        self.highs: array[int] = array("q")
        self._open = 0  # newest buckets not yet folded into the level above
        self._folded = 0

    def push(self, start: int, end: int, low: int, high: int) -> None:
        self.times.append(start)
        self.ends.append(end)
        self.lows.append(low)
        self.highs.append(high)
        self._open += 1
        if len(self.times) >= 2 * self.capacity:  # amortised: half is dropped at once
            for column in (self.times, self.ends, self.lows, self.highs):
                del column[: self.capacity]

    def take_group(self) -> Optional[tuple[int, int, int, int]]:
        if self._open < FANOUT:
            return None
        self._open = 0
        self._folded += 1
        newest: Sequence[int] = self.lows[-FANOUT:]
        return self.times[-FANOUT], self.ends[-1], min(newest), max(self.highs[-FANOUT:])

    def full_groups(self) -> bool:
        return self._folded > 0

    def mean_width_ns(self) -> float:
        return (self.ends[-1] - self.times[0]) / max(1, len(self.times))

    def add_to(
        self, result: list[Optional[tuple[int, int]]], start_ns: int, upto_ns: int, width: int, columns: int
    ) -> Optional[int]:
        """Adds the buckets that begin before `upto_ns`; the time of the oldest bucket held, or None."""
        first = max(0, bisect.bisect_left(self.times, start_ns) - 1)
        last = bisect.bisect_left(self.times, upto_ns)
        self._fill(result, range(first, last), start_ns, width, columns)
        return self.times[0] if self.times else None

    def add_open(
        self, result: list[Optional[tuple[int, int]]], start_ns: int, end_ns: int, width: int, columns: int
    ) -> None:
        count = len(self.times)
        self._fill(result, range(count - self._open, count), start_ns, width, columns, end_ns)

    def _fill(
        self,
        result: list[Optional[tuple[int, int]]],
        indices: range,
        start_ns: int,
        width: int,
        columns: int,
        end_ns: Optional[int] = None,
    ) -> None:
        times, ends, lows, highs = self.times, self.ends, self.lows, self.highs
        for index in indices:
            if ends[index] < start_ns or (end_ns is not None and times[index] >= end_ns):
                continue
            column = max(0, min(columns - 1, (times[index] - start_ns) * columns // width))
            last = max(column, min(columns - 1, (ends[index] - start_ns) * columns // width))
            low, high = lows[index], highs[index]
            for place in range(column, last + 1):
                held = result[place]
                result[place] = (low, high) if held is None else (min(held[0], low), max(held[1], high))
