"""Drives the app without a terminal, and reads its screen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Optional

from textual.app import App
from textual.pilot import Pilot

from memtui.tui.app import MemtuiApp, Outcome

Test = Callable[[MemtuiApp, "Pilot[Any]"], Awaitable[None]]


def drive(feed: Any, test: Test, size: tuple[int, int] = (120, 40), **options: Any) -> Optional[Outcome]:
    """Runs the app on `feed`, and `test` beside it; how the app was left, if it was."""
    options.setdefault("environment", {})
    options.setdefault("ascii_only", False)
    options.setdefault("color_system", "truecolor")

    async def run() -> Optional[Outcome]:
        app = MemtuiApp(feed, **options)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await test(app, pilot)
        return app.return_value

    return asyncio.run(run())


def text(app: App[Any]) -> list[str]:
    """The lines of the screen as they are composed, without trailing spaces."""
    strips = app.screen._compositor.render_strips(app.size)
    return [strip.text.rstrip() for strip in strips]


async def settle(app: MemtuiApp, pilot: Pilot[Any]) -> None:
    """Draws what there is to draw now, whatever the timers do."""
    app.monitor.draw_changes(force=True)
    await pilot.pause()
