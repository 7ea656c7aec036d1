"""Which stretch of a recorded step is shown, in how many columns, and the instant that is looked at."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Optional

from memtui.analysis.recorded import Column, StepTimeline

#: Closer than this there is nothing more to see: events, or microseconds.
LEAST_LENGTH = 8


@dataclass(frozen=True)
class StepWindow:
    """A stretch of a step by event, so that a long wait takes no room, or by time; and a cursor in it or none.

    `start` and `length` are in instants or, by time, in microseconds; `length` None is all of it. `cursor` is an
    instant; without one the peak is looked at.
    """

    by_time: bool = False
    start: int = 0
    length: Optional[int] = None
    cursor: Optional[int] = None

    def instant(self, timeline: StepTimeline) -> int:
        """The instant that is looked at."""
        return timeline.peak if self.cursor is None else min(self.cursor, timeline.last)

    def whole(self, timeline: StepTimeline) -> int:
        """The length of all of it."""
        if not self.by_time:
            return timeline.last + 1
        return 1 + max(timeline.recorded.duration_ns // 1000, timeline.time_us(timeline.last))

    def edges(self, timeline: StepTimeline, cells: int) -> tuple[int, ...]:
        """The instants with which the columns begin, and the one after the last column."""
        whole = self.whole(timeline)
        length = whole if self.length is None else self.length
        places = [self.start - (-index * length // cells) for index in range(cells + 1)]
        if not self.by_time:
            return tuple(places)
        times = timeline.recorded.event_us
        # A column of time begins with the first event in it; the first column with what held when it began.
        begun = [bisect_left(times, place) + 1 for place in places]
        begun[0] = timeline.instant_at(self.start) if self.start else 0
        if places[-1] >= whole:
            begun[-1] = timeline.last + 1
        return tuple(begun)

    def column_time_us(self, timeline: StepTimeline, column: int, cells: int) -> int:
        """When a column begins, since the step began."""
        length = self.whole(timeline) if self.length is None else self.length
        place = self.start + column * length // cells
        return place if self.by_time else timeline.time_us(min(place, timeline.last))

    def column_of(self, edges: tuple[int, ...], instant: int) -> Optional[int]:
        """The column in which an instant is; None where it is out of sight."""
        if not edges[0] <= instant < edges[-1]:
            return None
        return bisect_left(edges, instant + 1) - 1

    def moved(self, timeline: StepTimeline, columns: list[Column], edges: tuple[int, ...], by: int) -> StepWindow:
        """The cursor `by` columns further, on the most that was allocated there; the window follows it."""
        now = self.instant(timeline)
        place = self.column_of(edges, now)
        if place is None:
            return self.at(timeline, min(max(now, edges[0]), edges[-1] - 1))
        target = place + by
        way = 1 if by > 0 else -1
        while 0 <= target < len(columns) and columns[target].instant == now:
            target += way  # the same instant is as wide as several columns
        if 0 <= target < len(columns):
            return replace(self, cursor=columns[target].instant)
        beyond = edges[-1] if by > 0 else edges[0] - 1
        return self.at(timeline, max(0, min(timeline.last, beyond)))

    def at(self, timeline: StepTimeline, instant: int) -> StepWindow:
        """The cursor at an instant, the window moved so that it is in sight."""
        result = replace(self, cursor=instant)
        if self.length is None:
            return result
        place = self._place(timeline, instant)
        if self.start <= place < self.start + self.length:
            return result
        return replace(result, start=self._fitting(timeline, place - self.length // 2, self.length))

    def zoomed(self, timeline: StepTimeline, steps: int) -> StepWindow:
        """Twice as long for each step, or half as long; what is looked at stays in its place."""
        whole = self.whole(timeline)
        before = whole if self.length is None else self.length
        after = before << steps if steps > 0 else max(min(before, LEAST_LENGTH), before >> -steps)
        if after >= whole:
            return replace(self, start=0, length=None)
        focus = self._place(timeline, self.instant(timeline))
        if not self.start <= focus < self.start + before:
            focus = self.start + before // 2
        start = focus - (focus - self.start) * after // before
        return replace(self, start=self._fitting(timeline, start, after), length=after)

    def turned(self) -> StepWindow:
        """All of it by time, or by event again; the cursor stays."""
        return StepWindow(by_time=not self.by_time, cursor=self.cursor)

    def _place(self, timeline: StepTimeline, instant: int) -> int:
        return timeline.time_us(instant) if self.by_time else instant

    def _fitting(self, timeline: StepTimeline, start: int, length: int) -> int:
        return max(0, min(start, self.whole(timeline) - length))
