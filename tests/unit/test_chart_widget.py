"""The chart on a screen: what is written to the terminal is what changed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.tui.app import MemtuiApp
from memtui.tui.rows import Row
from memtui.tui.widgets.chart import Chart
from tests.support.made_up import MadeUpFeed, Training
from tests.support.screens import drive


@pytest.mark.parametrize(("seed", "step_s"), [(1, 0.35), (2, 3.0), (3, 20.4)])
def test_changed_cells_add_up_to_the_picture_of_a_full_rebuild(seed: int, step_s: float) -> None:
    """GIVEN a chart that is told frame by frame WHEN only its changed cells are written on a sheet THEN the sheet shows
    what a new chart draws, at every frame, also while zooming and moving.
    """
    chance = random.Random(seed)

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        chart = app.monitor.chart
        sheet = list(chart._drawn(*chart.size))
        written = 0
        frames = 120
        for frame in range(frames):
            app.feed.advance(chance.choice((0.1, 0.1, 0.1, 0.5, 2.0)))  # type: ignore[attr-defined]
            if frame % 40 == 39:
                app.monitor.chart.input.window = chart.input.window.zoomed(
                    chance.choice((-1, 1)), chart.age_ns, 0, chart.cells
                )
            app.monitor.refresh_view()
            for y, start, end in chart.take_changes():
                row = chart._rows[y]
                written += end - start
                sheet[y] = Row(
                    sheet[y].text[:start] + row.text[start:end] + sheet[y].text[end:],
                    sheet[y].roles[:start] + row.roles[start:end] + sheet[y].roles[end:],
                )
            assert sheet == chart._rows
            if frame % 10 == 0:
                assert [row.text for row in sheet] == [row.text for row in rebuilt(chart)]
        assert written < frames * chart.size.width * chart.size.height // 4

    drive(MadeUpFeed(Training(step_s=step_s)), test)


@pytest.mark.parametrize("seed", [1, 2])
def test_close_by_changed_cells_add_up_and_the_picture_stands_still_between_its_steps(seed: int) -> None:
    """GIVEN frames 5 ms apart WHEN the window is closer than a second THEN what is written adds up to what a new chart
    draws, and nothing is written for half a second.
    """
    chance = random.Random(seed)

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        chart = app.monitor.chart
        for _ in range(12):
            await pilot.press("plus")
        assert chart.cell_ns() * chart.cells < 150_000_000
        assert "no closer" in "".join(app.monitor.header.lines())
        sheet, written = list(chart._drawn(*chart.size)), 0
        for frame in range(60):
            app.feed.advance(chance.choice((0.05, 0.1)))  # type: ignore[attr-defined]
            app.monitor.refresh_view()
            spans = chart.take_changes()
            written += bool(spans)
            for y, start, end in spans:
                row = chart._rows[y]
                sheet[y] = Row(
                    sheet[y].text[:start] + row.text[start:end] + sheet[y].text[end:],
                    sheet[y].roles[:start] + row.roles[start:end] + sheet[y].roles[end:],
                )
            if frame % 10 == 0:
                assert [row.text for row in sheet] == [row.text for row in rebuilt(chart)]
        assert 5 <= written <= 20  # the scale may change besides
        await pilot.press("left", "left", "left")
        readout = chart.readout()
        assert readout is not None
        assert readout.allocated is not None
        assert chart.last_cell() - chart.cells < readout.time_ns // chart.cell_ns() <= chart.last_cell()

    drive(MadeUpFeed(Training(step_s=0.05), seconds=20, hertz=200), test)


def rebuilt(chart: Chart) -> list[Row]:
    """The picture without anything kept from before but the columns themselves and the scale."""
    held = chart._drawn_columns
    chart._drawn_columns = {}
    try:
        return chart.draw(*chart.size)
    finally:
        chart._drawn_columns = held


def test_nothing_is_drawn_when_nothing_came() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        app.monitor.draw_changes(force=True)
        assert app.monitor.chart.take_changes() == []

    drive(MadeUpFeed(), test)


def test_the_scale_fits_the_data_where_the_device_is_nearly_empty_and_on_demand() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        chart = app.monitor.chart
        assert any("capacity" in line for line in chart.lines())
        before = chart._scale
        await pilot.press("y")
        assert chart._scale != before
        assert "capacity 80.0 GiB ↑" in "".join(chart.lines())
        await pilot.press("y")
        assert chart._scale == before

    drive(MadeUpFeed(), test)


def test_a_click_sets_the_cursor_and_the_wheel_zooms() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        chart = app.monitor.chart
        await pilot.click("#chart", offset=(30, 5))
        await pilot.pause()
        cursor = chart.input.window.cursor_ns
        assert cursor is not None
        assert chart.time_at(30) == cursor

    drive(MadeUpFeed(), test)
