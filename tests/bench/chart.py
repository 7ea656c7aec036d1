"""Processor time of the chart, a frame."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

from textual.pilot import Pilot

from memtui.tui.app import MemtuiApp
from memtui.tui.paint import paint
from tests.support.made_up import MadeUpFeed, Training
from tests.support.screens import drive

from .report import Line, at_most

POINTS, FRAMES = 5_000, 600


def bench() -> Iterator[Line]:
    """Frames at 10 Hz of a chart of 5,000 points on a screen of 120x40: what changed, drawn and written."""
    for name, step_s in (("steps of 0.7 s", 0.7), ("steps of 20 s", 20.4)):
        for window, zoom in (("newest points", 0), ("all points", 8)):
            times = _frames(step_s, zoom)
            note = f" (highest {max(times):.1f})"
            yield at_most(f"a frame, {POINTS} points, {name}, {window}", statistics.mean(times), 2, "ms", 2, note)


def _frames(step_s: float, zoom: int) -> list[float]:
    times: list[float] = []

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        feed: Any = app.feed
        monitor = app.monitor
        monitor.timeline.zoom(zoom)
        monitor.draw_changes(force=True)
        for _ in range(FRAMES):
            feed.advance(0.1)
            monitor._feed_chart()
            begun = time.thread_time_ns()
            paint(monitor, [monitor.chart], app.look)
            times.append((time.thread_time_ns() - begun) / 1e6)

    drive(MadeUpFeed(Training(step_s=step_s), seconds=POINTS / 10), test)
    return times
