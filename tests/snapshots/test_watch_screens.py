"""What a Prometheus server knows as text at a frozen clock, a file a case. MEMTUI_UPDATE_SCREENS=1 writes them anew."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest
from textual.pilot import Pilot

from memtui.prometheus.collect import Look
from memtui.tui.app import MemtuiApp
from tests.support.fleet_ranks import Planted
from tests.support.looks import StandingFeed, look_of, simulated
from tests.support.screens import drive, text

FOLDER = Path(__file__).parent


def standing(ranks: int, hosts: int, stages: int, *gone: int) -> StandingFeed:
    fleet = simulated(ranks, hosts, stages)
    feed = StandingFeed(look_of(fleet, gone=gone))
    if ranks <= 64:
        feed.draw_tracks(fleet)
    return feed


def several_runs() -> StandingFeed:
    first = look_of(simulated(64, 8, 4), run="gpt-7b")
    second = look_of(simulated(16, 2, 1, planted=Planted()), run="vit-huge")
    return StandingFeed(_together(first, second))


def _together(one: Look, other: Look) -> Look:
    return replace(one, ranks={**one.ranks, **other.ranks}, info={**one.info, **other.info})


def unreachable() -> StandingFeed:
    feed = standing(16, 2, 2)
    feed.trouble = "http://prometheus:9090 cannot be reached: connection refused"
    feed.trouble_since_s = time.time()
    return feed


CASES: dict[str, tuple[Callable[[], StandingFeed], tuple[int, int], tuple[str, ...], bool]] = {
    "watch-1-80x24": (lambda: standing(1, 1, 1), (80, 24), (), False),
    "watch-16-120x40": (lambda: standing(16, 2, 2), (120, 40), (), False),
    "watch-64-80x24": (lambda: standing(64, 8, 4, 3), (80, 24), (), False),
    "watch-64-200x50": (lambda: standing(64, 8, 4, 3), (200, 50), (), False),
    "watch-1024-80x24": (lambda: standing(1024, 64, 8), (80, 24), (), False),
    "watch-1024-120x40": (lambda: standing(1024, 64, 8), (120, 40), ("pagedown",), False),
    "watch-1024-hosts-120x40": (lambda: standing(1024, 64, 8, 7), (120, 40), ("b",), False),
    "watch-1024-stages-80x24": (lambda: standing(1024, 64, 8), (80, 24), ("b", "b"), False),
    "watch-hosts-ascii-80x24": (lambda: standing(64, 8, 4, 3), (80, 24), ("b",), True),
    "watch-runs-120x40": (several_runs, (120, 40), (), False),
    "watch-run-of-several-80x24": (several_runs, (80, 24), ("down", "enter"), False),
    "watch-unreachable-120x40": (unreachable, (120, 40), (), False),
    "watch-rank-120x40": (lambda: standing(64, 8, 4), (120, 40), ("down", "enter", "5"), False),
}


@pytest.mark.parametrize("name", CASES)
def test_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    make, size, keys, ascii_only = CASES[name]
    monkeypatch.setattr(time, "time", lambda: 1_772_366_460.0)
    found: list[str] = []

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        while app.overview is None or not app.overview.is_current:
            await pilot.pause(0.05)
        await pilot.pause(0.1)
        await pilot.press(*keys)
        await pilot.pause(0.1)
        if app.screen is app.overview:
            app.overview.refresh_view()
        else:
            app.monitor.draw_changes(force=True)
        await pilot.pause()
        found.extend(text(app))

    drive(make(), test, size=size, ascii_only=ascii_only)
    path = FOLDER / f"{name}.txt"
    if os.environ.get("MEMTUI_UPDATE_SCREENS"):
        path.write_text("\n".join(found) + "\n", encoding="utf-8")
    assert found == path.read_text(encoding="utf-8").splitlines()
