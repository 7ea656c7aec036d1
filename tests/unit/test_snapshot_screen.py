"""The screen of a memory snapshot: its keys, what they ask for, and what a hostile file can do to it."""

from __future__ import annotations

import asyncio
import pathlib
import re
from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.snapshots.answers import Mark
from memtui.snapshots.errors import SnapshotError
from memtui.snapshots.model import open_snapshot
from memtui.snapshots.queries import Opened
from memtui.tui import palette
from memtui.tui.screens.snapshot import KEYS, TABS, SnapshotScreen, Start
from memtui.tui.snapshot_app import SnapshotApp
from memtui.tui.widgets.flame import at
from tests.support import snapshots as made
from tests.support.screens import text
from tests.support.snapshots import MIB
from tests.support.snapshotscreens import drive, press, said


def layered() -> Opened:
    return made.opened(made.layered())


def test_instants_are_reached_by_keys() -> None:
    async def test(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        opened = app.snapshot.overview.opened  # type: ignore[union-attr]
        places = []
        for keys in (("home",), ("full_stop", "full_stop"), ("comma",), ("end",), ("p",), ("o",)):
            await press(app, pilot, *keys)
            places.append(app.snapshot.course.window.cursor)
            assert app.snapshot.answer is not None
            assert app.snapshot.answer.at == opened.at(places[-1])
        last, peak = opened.course.instants - 1, opened.course.peak
        assert places == [0, 2, 1, last, peak, last]
        assert app.snapshot.answer is not None
        assert app.snapshot.answer.failed is not None
        assert app.snapshot.answer.failed.requested_bytes == 4 << 30

    drive(layered(), test)


def test_columns_show_their_most() -> None:
    async def test(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        course, window = app.snapshot.overview.opened.course, app.snapshot.course  # type: ignore[union-attr]
        await press(app, pilot, "shift+left", "left")
        cursor = window.window.cursor
        first, end = window.window.span(window.window.column_of(cursor, window.cells) or 0, window.cells)
        assert end - first > 1
        assert course.allocated_bytes[cursor] == max(course.allocated_bytes[first:end])

    drive(layered(), test, size=(60, 24))


def test_zoom_keeps_the_cursor_and_escape_shows_all() -> None:
    async def test(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        whole = app.snapshot.course.window
        await press(app, pilot, "plus", "plus")
        near = app.snapshot.course.window
        assert (near.cursor, near.length) == (whole.cursor, whole.length // 4)
        assert near.start <= near.cursor < near.start + near.length
        await press(app, pilot, *("plus",) * 9, "escape")
        assert app.snapshot.course.window == whole

    drive(layered(), test)


def test_two_instants_are_compared() -> None:
    async def test(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "6")
        assert app.snapshot.tab == "live"
        assert said(app) == "no instant is marked: m marks the one at the cursor"
        await press(app, pilot, "m", "e", "6")
        answer = app.snapshot.answer
        assert answer is not None
        assert answer.changes is not None
        changed = {each.name: each.change_bytes for each in answer.changes}
        assert changed["model.py:20 forward"] < 0
        assert "train.py:33 train" not in changed
        assert sum(changed.values()) == 288 * MIB - 680 * MIB
        await press(app, pilot, "p", "m")
        assert app.snapshot.mark is None
        assert app.snapshot.tab == "live"

    drive(layered(), test)


def test_another_snapshot_is_compared() -> None:
    before, after = made.opened(made.training()), layered()
    last = after.course.instants - 1
    mark = Mark(before, before.course.instants - 1, "the end of before.pickle")

    async def test(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        assert app.snapshot.tab == "difference"
        screen = "\n".join(text(app))
        assert "since the end of before.pickle" in screen
        assert re.search(r"−8\.0 MiB +0 B +1 to 0  train\.py:5", screen)

    drive(after, test, start=lambda: Start(after, last, mark))


def test_rows_open() -> None:
    async def test(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "down", "enter")
        assert app.snapshot.table.open
        assert any(line.strip() == "train.py:51 main" for line in text(app))
        await press(app, pilot, "escape")
        assert not app.snapshot.table.open
        await press(app, pilot, "3", *("pagedown",) * 20)
        assert app.snapshot.table.marked == 36

    drive(layered(), test)


def test_boxes_are_chosen_and_fill_the_width() -> None:
    async def test(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "4", "down", "down", "right", "right", "right")
        flame = app.snapshot.flame
        assert flame.flame is not None
        assert at(flame.flame, flame.chosen).label == "train.py:12 build"
        await press(app, pilot, "left", "enter", "p")
        assert at(flame.flame, flame.root).label == "train.py:33 train"
        assert any(line.startswith(" train.py:33 train 192.0 MiB") for line in text(app))
        await press(app, pilot, "escape", "escape", "escape")
        assert flame.root == ()

    drive(layered(), test)


def test_devices_are_chosen() -> None:
    told = made.layered()
    told["segments"] += [made.segment(9 << 30, made.block(6 * MIB, "active_allocated"), device=1)]
    told["device_traces"].append([])

    async def test(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        names = []
        for _ in range(3):
            names.append(app.snapshot.overview.opened.device.name)  # type: ignore[union-attr]
            await press(app, pilot, "right_square_bracket")
            await pilot.pause(0.1)
        assert names == ["cuda:0", "cuda:1", "cuda:0"]

    drive(made.opened(told), test)


_HOSTILE = "a\x1b]0;gone\x07\x1b[2Jb[red]c\u202ed\n"


@pytest.mark.parametrize("tab", ["1", "2", "3", "4", "5"])
def test_a_file_cannot_reach_the_terminal(tmp_path: pathlib.Path, tab: str) -> None:
    stack = [made.frame(f"/home/{_HOSTILE}.py", 7, _HOSTILE)]
    trace = [made.event("segment_alloc", 0, 4 * MIB, 0), made.event("alloc", 0, 2 * MIB, 1, stack)]
    segments = [made.segment(0, made.block(2 * MIB, "active_allocated", stack), made.block(2 * MIB))]
    path = made.write(tmp_path / f"{_HOSTILE.strip()}.pickle", made.raw(segments, trace))
    snapshot = open_snapshot(path)

    async def test(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, tab, "enter", "m")
        screen = "\n".join(text(app))
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", screen)
        assert "[red]cd" in screen

    drive(Opened(snapshot, snapshot.device(None)), test, size=(200, 50))


def test_a_file_that_cannot_be_read_ends_the_app() -> None:
    def start() -> Start:
        raise SnapshotError("made.pickle is damaged")

    app = SnapshotApp("made.pickle", start, environment={}, ascii_only=False)

    async def run() -> None:
        async with app.run_test() as pilot:
            for _ in range(200):
                await pilot.pause(0.01)
                if app.trouble is not None:
                    break

    asyncio.run(run())
    assert str(app.trouble) == "made.pickle is damaged"
    assert app.failure is None


def test_themes_change_and_no_color_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        names = []
        for _ in range(len(palette.THEMES)):
            names.append(app.look.colors.name)
            await press(app, pilot, "t")
        assert sorted(names) == sorted(colors.name for colors in palette.THEMES)

    drive(layered(), test)

    async def bare(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "t")
        assert app.look.colors.mono
        assert said(app) == "NO_COLOR is set"

    drive(layered(), bare, environment={"NO_COLOR": "1"})


def test_small_terminals_say_so() -> None:
    async def test(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        await pilot.resize_terminal(30, 8)
        await pilot.pause()
        assert any("enlarge the terminal" in line for line in text(app))
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert any("live by line" in line for line in text(app))

    drive(layered(), test)


def test_help_tells_every_key() -> None:
    told = " ".join(key for key, _ in KEYS)
    shown = {
        "plus": "+",
        "minus": "-",
        "comma": ",",
        "full_stop": ".",
        "left": "←",
        "right": "→",
        "up": "↑",
        "down": "↓",
    }
    aliases = {"equals_sign", "k", "j", "ctrl+left", "ctrl+right", "shift+tab", "shift+right", "pageup", "pagedown"}
    aliases |= {"right_square_bracket", "left_square_bracket", "shift+left", "enter", "escape", "end"}
    for binding in SnapshotScreen.BINDINGS:
        for key in binding.key.split(","):  # type: ignore[union-attr]
            assert key in aliases or shown.get(key, key) in told.split(), key
    assert {key for key, _, _ in TABS} <= set(told.split())
