"""The screen as an SVG file, without a terminal: for documentation and for looking at it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Optional

from .app import MemtuiApp
from .feed import BuildView, Feed

if TYPE_CHECKING:
    from .screens.snapshot import Start


async def render(
    feed: Feed,
    width: int,
    height: int,
    *,
    build: Optional[BuildView] = None,
    theme: str = "dark",
    keys: tuple[str, ...] = (),
    ascii_only: bool = False,
    seconds: float = 0.0,
    after: float = 0.0,
) -> str:
    """An SVG of the app at a size and theme: after `seconds`, `keys` pressed, and `after` seconds more."""
    app = MemtuiApp(feed, build=build, theme=theme, ascii_only=ascii_only, color_system="truecolor", environment={})
    async with app.run_test(size=(width, height)) as pilot:
        while not app.ready:
            await pilot.pause(0.02)
        await asyncio.sleep(seconds)
        for key in keys:
            await pilot.press(key)
        await asyncio.sleep(after)
        app.monitor.draw_changes(force=True)
        await pilot.pause()
        return app.export_screenshot(title="memtui", simplify=True)


async def render_snapshot(
    start: Callable[[], Start], name: str, width: int, height: int, *, theme: str = "dark", keys: tuple[str, ...] = ()
) -> str:
    """An SVG of a memory snapshot's screen at a size and theme, after `keys`; what each asks for is waited for."""
    from .snapshot_app import SnapshotApp

    app = SnapshotApp(name, start, theme=theme, ascii_only=False, color_system="truecolor", environment={})
    async with app.run_test(size=(width, height)) as pilot:
        for key in ("", *keys):
            if key:
                await pilot.press(key)
            while not app.snapshot.settled:
                await pilot.pause(0.02)
        await pilot.pause()
        return app.export_screenshot(title="memtui", simplify=True)


def save(
    feed: Feed,
    path: str,
    width: int,
    height: int,
    *,
    theme: str = "dark",
    keys: tuple[str, ...] = (),
    seconds: float = 0.0,
    after: float = 0.0,
) -> None:
    """Writes the SVG of `render` to `path`; raises OSError."""
    svg = asyncio.run(render(feed, width, height, theme=theme, keys=keys, seconds=seconds, after=after))
    with open(path, "w", encoding="utf-8") as file:
        file.write(svg)
