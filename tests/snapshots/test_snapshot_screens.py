"""The screen of a memory snapshot as text, a file a case. MEMTUI_UPDATE_SCREENS=1 writes them anew: look at them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.snapshots.queries import Opened
from memtui.tui.snapshot_app import SnapshotApp
from tests.support import snapshots as made
from tests.support.screens import text
from tests.support.snapshotscreens import drive, press

FOLDER = Path(__file__).parent


def layered() -> Opened:
    return made.opened(made.layered())


def training() -> Opened:
    return made.opened(made.training())


def unrecorded() -> Opened:
    return made.opened(made.raw(made.training()["segments"], []))


CASES: dict[str, tuple[Any, tuple[int, int], tuple[str, ...], bool]] = {
    "live-80x24": (layered, (80, 24), (), False),
    "live-120x40": (layered, (120, 40), ("down", "enter"), False),
    "live-200x50": (layered, (200, 50), (), False),
    "live-ascii-80x24": (layered, (80, 24), (), True),
    "live-40x12": (layered, (40, 12), (), False),
    "categories-100x30": (layered, (100, 30), ("2", "enter"), False),
    "largest-80x24": (layered, (80, 24), ("3", "down", "down"), False),
    "flame-80x24": (layered, (80, 24), ("4", "down", "down"), False),
    "flame-120x40": (layered, (120, 40), ("4", "down", "enter", "down", "down"), False),
    "flame-ascii-80x24": (layered, (80, 24), ("4",), True),
    "segments-80x24": (layered, (80, 24), ("5",), False),
    "segments-ascii-120x40": (layered, (120, 40), ("5", "enter"), True),
    "failed-80x24": (layered, (80, 24), ("o",), False),
    "failed-120x40": (layered, (120, 40), ("o", "enter"), False),
    "zoomed-80x24": (layered, (80, 24), ("y", "plus", "plus", "left", "left", "comma"), False),
    "difference-80x24": (layered, (80, 24), ("home", "m", "p", "6"), False),
    "difference-120x40": (layered, (120, 40), ("e", "m", "p", "6", "enter"), False),
    "rest-80x24": (training, (80, 24), ("2",), False),
    "unrecorded-80x24": (unrecorded, (80, 24), (), False),
    "notes-80x24": (training, (80, 24), ("n",), False),
    "help-120x50": (layered, (120, 50), ("question_mark",), False),
    "help-80x24": (layered, (80, 24), ("question_mark",), False),
}


@pytest.mark.parametrize("name", CASES)
def test_screen(name: str) -> None:
    make, size, keys, ascii_only = CASES[name]
    found: list[str] = []

    async def test(app: SnapshotApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, *keys)
        app.snapshot.course.said = ""  # what goes away by itself
        app.snapshot.draw_changes()
        await pilot.pause()
        found.extend(text(app))

    drive(make(), test, size=size, ascii_only=ascii_only)
    path = FOLDER / f"snapshot-{name}.txt"
    if os.environ.get("MEMTUI_UPDATE_SCREENS"):
        path.write_text("\n".join(found) + "\n", encoding="utf-8")
    assert found == path.read_text(encoding="utf-8").splitlines()
