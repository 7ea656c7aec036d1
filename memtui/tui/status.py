"""What the line under the verdict says when something is asked or out of the ordinary."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Optional

from memtui.analysis import glossary, units
from memtui.analysis.verdict import end_text
from memtui.analysis.view import View

from . import roles
from .feed import absent
from .plot.frame import fine_clock
from .plot.track import Column
from .timeline import Timeline
from .widgets.chart import Readout
from .widgets.header import elapsed

MESSAGE_S = 4.0


class Status:
    """The most urgent of: a passing message, a term's meaning, the figures at the cursor, the pause."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._message: Optional[tuple[float, str]] = None
        self._cursor_ns: Optional[int] = None  # where the cursor was last
        self._explained: Optional[int] = None  # the row that was marked when it moved

    def say(self, text: str) -> None:
        """Shows a line that goes away by itself."""
        self._message = (time.monotonic() + MESSAGE_S, text)

    def line(self, view: View | None, marked_row: int | None) -> tuple[str, str] | None:
        """(role, text), or None in an ordinary moment."""
        timeline = self.timeline
        if self._message is not None:
            if time.monotonic() < self._message[0]:
                return roles.TITLE, self._message[1]
            self._message = None
        if timeline.window.cursor_ns != self._cursor_ns:
            # Whoever moves the cursor asks for the figures there, and no longer for what a term means.
            self._cursor_ns = timeline.window.cursor_ns
            self._explained = None if self._cursor_ns is None else marked_row
        if view is not None and marked_row not in (None, self._explained) and marked_row < len(view.rows):
            row = view.rows[marked_row]
            return roles.TEXT, glossary.explain(row.key) or row.label
        readout = timeline.chart.readout()
        if readout is not None:
            return roles.BRIGHT, self._at_cursor(readout)
        if timeline.paused_ns is not None:
            since = elapsed(timeline.feed.now_ns() - timeline.paused_ns)
            end = timeline.feed.session.end
            meanwhile = "everything is still received"
            if end is not None:
                status = "" if end.exit_status is None else ": " + end_text(replace(end, exception=None, text=""))
                meanwhile = f"the program has ended{status}"
            return roles.WARNING, f"for {since}; {meanwhile} · p goes on"
        if timeline.in_the_past:
            return roles.TEXT, "the chart shows the past · end: live again"
        return None

    def _at_cursor(self, readout: Readout) -> str:
        timeline = self.timeline
        hello = timeline.feed.session.hello
        parts = []
        if hello is not None:
            wall_ns = readout.time_ns + hello.wall_offset_ns
            fine = timeline.chart.close
            parts.append(fine_clock(wall_ns) if fine else time.strftime("%H:%M:%S", time.localtime(wall_ns / 1e9)))
        parts += [
            f"allocated {_range(readout.allocated)}",
            f"reserved {_range(readout.reserved)}",
            f"{timeline.chart.input.device_label.removeprefix('device ')} {_range(readout.device)}",
        ]
        if readout.phase:
            parts.append(readout.phase)
        return " · ".join([*parts, self._distance(readout.time_ns)])

    def _distance(self, time_ns: int) -> str:
        """From the end of a recording; else from now, or from a rank's end where that was before."""
        timeline = self.timeline
        if not absent(timeline.feed, "events"):
            return f"{elapsed(timeline.end_ns() - time_ns)} " + ("before the end" if timeline.feed.replay else "ago")
        end = timeline.feed.session.end
        if end is None:
            return f"{elapsed(time.time_ns() - time_ns)} ago"
        after_ns = time_ns - end.time_ns
        return f"{elapsed(abs(after_ns))} {'before' if after_ns < 0 else 'after'} its end"


def _range(column: Column) -> str:
    if column is None:
        return units.UNKNOWN
    low, high = (units.size(value) for value in column)
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(' ' + unit) else low} to {high}"
