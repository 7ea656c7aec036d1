"""The host's figures: one word for one thing, room between them, one name for one value."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.analysis import units
from memtui.session.readings import HostReading
from memtui.tui.app import MemtuiApp
from memtui.wire.frames import Device, DeviceFrame
from tests.support.made_up import GIB, MIB, MadeUpFeed, Training
from tests.support.screens import drive, settle, text


class OnHost(Training):
    """The same without a GPU: a process of less than 400 MiB on a machine of 64 GiB."""

    def __init__(self) -> None:
        super().__init__(total=GIB // 2)

    def hello(self) -> Any:
        return dataclasses.replace(super().hello(), devices=(Device("host", "host", "", "malloc"),))

    def frame(self, time_ns: int) -> Any:
        frame = super().frame(time_ns)
        host: DeviceFrame = dataclasses.replace(
            frame.devices[0], device="host", rss_bytes=(frame.devices[0].reserved_bytes or 0) + 50 * MIB
        )
        return dataclasses.replace(frame, devices=(host,))


class HostFeed(MadeUpFeed):
    """A feed of it, with the machine's memory beside it."""

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self.session.apply_host(
            HostReading(
                self.clock_ns,
                True,
                300 * MIB,
                104.0,
                "python",
                ("train.py",),
                "user",
                total_bytes=64 * GIB,
                available_bytes=60 * GIB,
            )
        )


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_one_word_for_one_thing(width: int, ascii_only: bool) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await settle(app, pilot)
        shown = "\n".join(text(app))
        assert "outside malloc" not in shown
        assert shown.count("non-torch") == 2  # the column and the bar
        assert "process (RSS)" in shown
        assert "predicted allocated" not in shown
        view = app.monitor.view
        assert view is not None
        rule = next(rule for rule in view.rules if rule.key == "predicted_peak")
        assert rule.value_bytes == next(row.figure.value for row in view.rows if row.key == "predicted_peak_bytes")
        assert f"predicted peak {units.size(rule.value_bytes)} of {units.size(64 * GIB - 4 * GIB + 300 * MIB)}" in shown
        assert "0 MiB" in shown
        if ascii_only:
            assert " . " not in text(app)[0] + text(app)[1]
        await pilot.press("left", "left")
        assert " used " not in text(app)[2]

    drive(HostFeed(OnHost()), test, size=(width, 40), ascii_only=ascii_only)


@pytest.mark.parametrize("width", [80, 120])
def test_a_hundred_per_cent_keeps_its_distance(width: int) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await settle(app, pilot)
        view = app.monitor.view
        assert view is not None
        full = tuple(dataclasses.replace(row, percent=100.0) for row in view.rows)
        app.monitor.figures.view = dataclasses.replace(view, rows=full)
        rows = app.monitor.figures.draw(app.monitor.figures.size.width, 12)
        shares = [row.text for row in rows if "100 %" in row.text]
        assert len(shares) >= 8
        assert all(" 100 % " in line for line in shares)

    drive(MadeUpFeed(), test, size=(width, 30))
