"""Where in time the screen is: live, paused, at a cursor in the past, or at the shown instant of a recording."""

from __future__ import annotations

from typing import cast

from .feed import Feed, Recording
from .plot.scale import SPANS, USUAL_SPAN
from .plot.window import Window
from .widgets.chart import Chart


class Timeline:
    """Moves the chart's window and cursor, and a recording's instant with them."""

    def __init__(self, feed: Feed, chart: Chart) -> None:
        self.feed, self.chart = feed, chart
        self.paused_ns: int | None = None
        self.device = ""

    def now_ns(self) -> int:
        """The instant that the figures are of: now, when the screen was paused, or where a recording stands."""
        return self.feed.now_ns() if self.paused_ns is None else self.paused_ns

    def end_ns(self) -> int:
        """The newest instant there can be figures of: a recording's chart goes on beyond what is shown."""
        return cast("Recording", self.feed).end_ns if self.feed.replay else self.now_ns()

    def first_ns(self) -> int:
        """The oldest instant there is anything of."""
        firsts = [
            series.first_time_ns
            for key in ("allocated_bytes", "reserved_bytes", "device_used_bytes")
            if (series := self.feed.session.series(self.device, key)) is not None and series.first_time_ns is not None
        ]
        return min(firsts, default=self.end_ns())

    @property
    def window(self) -> Window:
        """What the chart shows."""
        return self.chart.input.window

    @window.setter
    def window(self, window: Window) -> None:
        self.chart.input.window = window

    @property
    def in_the_past(self) -> bool:
        """Whether a live screen's chart is not of now."""
        return self.window.end_ns is not None and not self.feed.replay

    def toggle_pause(self) -> None:
        """Holds the clock, or lets it go."""
        self.paused_ns = None if self.paused_ns is not None else self.feed.now_ns()
        self.chart.input.frozen = self.paused_ns is not None

    def zoom(self, steps: int) -> None:
        """Zooms out by `steps`; in as far as there is detail to see."""
        chart = self.chart
        self.window = self.window.zoomed(steps, chart.age_ns, self._live_end_ns(), chart.cells, chart.closest())

    def _live_end_ns(self) -> int:
        return self.end_ns() if self.feed.replay else min(self.end_ns(), self.chart.live_end_ns())

    def move(self, columns: int) -> None:
        """Moves the cursor by columns of the chart; to the right of the newest is live."""
        chart = self.chart
        if self.feed.replay:
            self.point(self.feed.now_ns() + columns * chart.cell_ns())
        else:
            self.window = self.window.moved(columns, chart.cells, chart.age_ns, self.first_ns(), self._live_end_ns())

    def point(self, time_ns: int) -> None:
        """Sets the cursor; a recording is shown as it was then."""
        place = max(self.first_ns(), min(self._live_end_ns(), time_ns))
        if self.feed.replay:
            recording = cast("Recording", self.feed)
            recording.seek(time_ns)
            place = recording.now_ns()
        self.window = self.window.at(place, self.chart.cells, self.chart.age_ns, self._live_end_ns())

    def oldest(self) -> None:
        """The cursor at the oldest figures."""
        self.point(cast("Recording", self.feed).start_ns if self.feed.replay else self.first_ns())

    def newest(self) -> None:
        """Live again; or the end of the recording."""
        if self.feed.replay:
            self.point(self.end_ns())
        else:
            self.window = self.window.live()

    def show_recording(self) -> None:
        """A recording has been read: all of it is in the window, the cursor where it stands."""
        recording = cast("Recording", self.feed)
        length = recording.end_ns - recording.start_ns
        long_enough = (index for index in range(USUAL_SPAN, len(SPANS)) if SPANS[index] * 1e9 >= length)
        span = next(long_enough, len(SPANS) - 1)
        self.window = Window(span=span, cursor_ns=recording.now_ns())
