"""Drives a snapshot's screen without a terminal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Optional

from textual.pilot import Pilot

from memtui.snapshots.queries import Opened
from memtui.tui.screens.snapshot import Start
from memtui.tui.snapshot_app import SnapshotApp

Test = Callable[[SnapshotApp, "Pilot[Any]"], Awaitable[None]]
_PATIENCE_S = 60.0


def drive(opened: Opened, test: Test, size: tuple[int, int] = (120, 40), **options: Any) -> SnapshotApp:
    """Opens the screen on the peak, waits until it is read, and runs `test` beside it."""
    start = options.pop("start", None) or (lambda: Start(opened, opened.course.peak))
    options = {"environment": {}, "ascii_only": False, "color_system": "truecolor", **options}

    async def run() -> SnapshotApp:
        app = SnapshotApp("made.pickle", start, **options)
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            await test(app, pilot)
        return app

    return asyncio.run(run())


async def press(app: SnapshotApp, pilot: Pilot[Any], *keys: str) -> None:
    """Presses keys one after the other, and waits for the answer to each."""
    for key in keys:
        await pilot.press(key)
        await settled(app, pilot)


async def settled(app: SnapshotApp, pilot: Pilot[Any]) -> None:
    """Waits until what the cursor asks for is there, and drawn."""
    end = time.monotonic() + _PATIENCE_S
    while not app.snapshot.settled and time.monotonic() < end:
        await pilot.pause(0.01)
    await pilot.pause()


def said(app: SnapshotApp) -> Optional[str]:
    """What the line above the timeline says for a moment."""
    return app.snapshot.course.said or None
