"""The overview of ranks as text at a frozen clock, a file a case. MEMTUI_UPDATE_SCREENS=1 writes them anew."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from textual.pilot import Pilot

from memtui.tui.app import MemtuiApp
from tests.support.made_up_ranks import GIB, MadeUpRanks, ranks
from tests.support.screens import drive, text

FOLDER = Path(__file__).parent


def troubled() -> MadeUpRanks:
    """Contexts on device 0, one rank stopped, and later one that has gone."""
    feed = ranks(8)
    for rank in range(1, 8):
        feed.trainings[rank].stray = GIB // 2
    feed.advance(2)
    feed.stop_rank(6)
    feed.end_rank(2)
    feed.advance(4)
    return feed


def restarted() -> MadeUpRanks:
    feed = ranks(2)
    feed.end_rank(1, "ValueError", "no such sample")
    feed.end_rank(0)
    for rank in (0, 1):
        feed.come_back(rank)
    feed.advance(8)
    return feed


CASES: dict[str, tuple[Callable[[], Any], tuple[int, int], tuple[str, ...], bool]] = {
    "ranks-2-80x24": (lambda: ranks(2), (80, 24), (), False),
    "ranks-8-80x24": (lambda: ranks(8), (80, 24), ("down", "space", "s"), False),
    "ranks-8-120x22": (lambda: ranks(8), (120, 22), ("s",), False),
    "ranks-8-200x50": (lambda: ranks(8), (200, 50), (), False),
    "ranks-16-80x24": (lambda: ranks(16), (80, 24), ("end",), False),
    "ranks-64-80x24": (lambda: ranks(64), (80, 24), (), False),
    "ranks-64-200x50": (lambda: ranks(64), (200, 50), (), False),
    "ranks-64-ascii-80x24": (lambda: ranks(64), (80, 24), ("right",), True),
    "ranks-troubled-120x30": (troubled, (120, 30), (), False),
    "ranks-restarted-100x30": (restarted, (100, 30), ("e",), False),
    "ranks-compare-120x30": (lambda: ranks(8), (120, 30), (*("down",) * 5, "c"), False),
    "ranks-compare-80x24": (lambda: ranks(2), (80, 24), ("c",), False),
}


@pytest.mark.parametrize("name", CASES)
def test_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    make, size, keys, ascii_only = CASES[name]
    found: list[str] = []

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        while app.overview is None or not app.overview.is_current:
            await pilot.pause(0.05)
        await pilot.pause(0.1)
        await pilot.press(*keys)
        await pilot.pause(0.1)
        if app.screen is app.overview:
            app.overview.refresh_view()
        await pilot.pause()
        found.extend(text(app))

    drive(make(), test, size=size, ascii_only=ascii_only)
    path = FOLDER / f"{name}.txt"
    if os.environ.get("MEMTUI_UPDATE_SCREENS"):
        path.write_text("\n".join(found) + "\n", encoding="utf-8")
    assert found == path.read_text(encoding="utf-8").splitlines()
