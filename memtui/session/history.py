"""Series of bytes over time that keep every spike however far the chart zooms out."""

from __future__ import annotations

import bisect
from array import array
from typing import Optional

#: Each level's buckets are this many of the level below; so a window of any width needs few of them.
FANOUT = 8
#: Newest samples at full rate (13 minutes at 10 Hz), and as many buckets on each coarser level: six levels hold
#: 300 days at 10 Hz in at most 2 MB.
CAPACITY = 8_192
LEVELS = 6
#: Newest samples whose distances tell how close samples are.
RECENT = 64

Range = tuple[int, int]


class Series:
    """One figure over time: the newest samples, and min/max buckets of older ones on coarser levels.

    Times are monotonic nanoseconds, values bytes. `append` is O(1); `window` is O(columns).

    A bucket of level k holds FANOUT**k consecutive samples. Level k's buckets, and on each finer level the newest few
    that are not folded into the next one yet, hold every sample exactly once: `window` relies on that.
    """

    def __init__(self, capacity: int = CAPACITY, levels: int = LEVELS) -> None:
        self.capacity = max(capacity, FANOUT)
        self._levels = [_Level(self.capacity) for _ in range(levels)]
        self.last_time_ns: Optional[int] = None
        self.last_value: Optional[int] = None
        self.apart_ns = 0  # how far samples are known to be apart, where they do not come as often as an agent's

    def append(self, time_ns: int, value: int, high: Optional[int] = None) -> None:
        """Adds a sample; one that is not newer than the newest is ignored (a history sent twice).

        `high` is the most the figure was since the previous sample, where something counted it (a peak counter).
        """
        if self.last_time_ns is not None and time_ns <= self.last_time_ns:
            return
        self.last_time_ns, self.last_value = time_ns, value
        bucket = (time_ns, time_ns, value, value if high is None or high < value else high)
        for place, level in enumerate(self._levels):
            level.push(bucket)
            if place + 1 == len(self._levels) or level.open < FANOUT:
                return
            bucket = level.fold()

    def __len__(self) -> int:
        return len(self._levels[0].starts)

    @property
    def first_time_ns(self) -> Optional[int]:
        """When the oldest sample still held (on any level) was taken; None while empty."""
        starts = [level.starts[0] for level in self._levels if level.starts]
        return min(starts) if starts else None

    def spacing_ns(self) -> Optional[int]:
        """How close the newest samples are where they are closest: a quarter of them are closer. None for too few."""
        times = self._levels[0].starts[-RECENT:]
        gaps = sorted(after - before for before, after in zip(times, times[1:]))
        return gaps[len(gaps) // 4] if len(gaps) >= RECENT // 8 else None

    def around(self, time_ns: int) -> tuple[Optional[Range], Optional[Range]]:
        """(time, value) of the last sample at or before `time_ns` and of the first after it, of those at full rate."""
        samples = self._levels[0]
        place = bisect.bisect_right(samples.starts, time_ns)
        before = (samples.starts[place - 1], samples.lows[place - 1]) if place else None
        after = (samples.starts[place], samples.lows[place]) if place < len(samples.starts) else None
        return before, after

    def window(self, start_ns: int, end_ns: int, columns: int) -> list[Optional[Range]]:
        """(min, max) for each of `columns` equal pieces of [start, end), None where there is no sample.

        Every sample inside the window is in the range of its column, so no spike is lost at any zoom. A range may
        also hold samples of the neighbouring pieces, as far as one bucket reaches: zoomed out, about a column.
        """
        canvas = _Canvas(start_ns, end_ns, columns)
        if end_ns <= start_ns or columns <= 0:
            return canvas.ranges
        finest = self._finest_affordable(start_ns, end_ns, FANOUT * columns)
        # What is not folded into the chosen level yet: fewer than FANOUT buckets a level.
        for level in self._levels[:finest]:
            count = len(level.starts)
            canvas.paint(level, range(count - level.open, count), end_ns)
        # From there backwards in time: what a level has forgotten, the next coarser one still holds.
        until = end_ns
        for level in self._levels[finest:]:
            if not level.starts:
                break
            canvas.paint(level, level.overlapping(start_ns, until), until)
            until = min(until, level.starts[0])
            if until <= start_ns:
                break
        return canvas.ranges

    def _finest_affordable(self, start_ns: int, end_ns: int, most: int) -> int:
        for place, level in enumerate(self._levels):
            if len(level.overlapping(start_ns, end_ns)) <= most:
                return place
        return len(self._levels) - 1


class _Level:
    """Buckets in order of time; the newest `open` ones are not part of the next level yet."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.starts: array[int] = array("q")
        self.ends: array[int] = array("q")
        self.lows: array[int] = array("q")
        self.highs: array[int] = array("q")
        self.open = 0

    def push(self, bucket: tuple[int, int, int, int]) -> None:
        for column, value in zip((self.starts, self.ends, self.lows, self.highs), bucket):
            column.append(value)
        self.open += 1
        spare = self.capacity // 4  # amortised: many are dropped at once, and only folded ones, for open <= FANOUT
        if len(self.starts) > self.capacity + spare:
            for column in (self.starts, self.ends, self.lows, self.highs):
                del column[: len(column) - self.capacity]

    def fold(self) -> tuple[int, int, int, int]:
        """The bucket of the next level that the open ones make."""
        count, self.open = self.open, 0
        return self.starts[-count], self.ends[-1], min(self.lows[-count:]), max(self.highs[-count:])

    def overlapping(self, start_ns: int, end_ns: int) -> range:
        """Indices of the buckets that have a part in [start, end)."""
        return range(bisect.bisect_left(self.ends, start_ns), bisect.bisect_left(self.starts, end_ns))


class _Canvas:
    """The columns of a window while they are being filled."""

    def __init__(self, start_ns: int, end_ns: int, columns: int) -> None:
        self.start_ns, self.end_ns = start_ns, end_ns
        self.width = max(1, end_ns - start_ns)
        self.columns = columns
        self.ranges: list[Optional[Range]] = [None] * max(0, columns)

    def paint(self, level: _Level, indices: range, until_ns: int) -> None:
        """Adds buckets to the columns they reach, up to `until_ns`: what comes after is painted from a finer level."""
        ranges, start_ns, width, columns = self.ranges, self.start_ns, self.width, self.columns
        until_ns = min(until_ns, self.end_ns)
        part = slice(indices.start, indices.stop)
        for first, last, low, high in zip(level.starts[part], level.ends[part], level.lows[part], level.highs[part]):
            if last < start_ns or first >= until_ns:
                continue
            column = (first - start_ns) * columns // width if first > start_ns else 0
            final = column if last == first else (min(last, until_ns - 1) - start_ns) * columns // width
            while True:
                held = ranges[column]
                if held is None:
                    ranges[column] = (low, high)
                elif low < held[0] or high > held[1]:
                    ranges[column] = (min(held[0], low), max(held[1], high))
                if column >= final:
                    break
                column += 1
