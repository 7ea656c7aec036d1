"""The screen as text at a frozen clock, a file a case. MEMTUI_UPDATE_SCREENS=1 writes them anew: then look at them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable

import pytest
from textual.pilot import Pilot

from memtui.tui.app import MemtuiApp
from tests.support.made_up import BEGUN_NS, GIB, MadeUpFeed, MadeUpProgram, MadeUpRecording, Training
from tests.support.recorded import gpt
from tests.support.screens import drive, settle, text

FOLDER = Path(__file__).parent


def training() -> MadeUpFeed:
    return MadeUpFeed()


def fast() -> MadeUpFeed:
    return MadeUpFeed(Training(step_s=0.35, total=24 * GIB), seconds=200)


def recorded_step() -> MadeUpFeed:
    feed = MadeUpFeed()
    feed.session.apply(gpt(time_ns=BEGUN_NS), feed.clock_ns)
    return feed


def small_device() -> MadeUpFeed:
    return MadeUpFeed(Training(total=16 * GIB))


def ended() -> MadeUpFeed:
    feed = MadeUpFeed()
    feed.end("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.", 1)
    return feed


def failed() -> MadeUpFeed:
    """An allocation fails, and a later one for more than there is."""
    feed = MadeUpFeed()
    feed.fail(40 * GIB)
    feed.advance(30)
    feed.fail(100 * GIB)
    return feed


def starting() -> MadeUpFeed:
    return MadeUpFeed(seconds=0)


def supervised() -> MadeUpFeed:
    feed = MadeUpFeed()
    feed.program = MadeUpProgram()
    return feed


def recording() -> MadeUpRecording:
    return MadeUpRecording()


def recorded_tensors() -> MadeUpRecording:
    feed = MadeUpRecording()
    feed.session.apply(feed.training.tensors(feed.clock_ns - 7_000_000_000), feed.clock_ns)
    return feed


def recorded_segments() -> MadeUpRecording:
    feed = MadeUpRecording()
    feed.session.apply(feed.training.segments(feed.clock_ns - 7_000_000_000), feed.clock_ns)
    return feed


CASES: dict[str, tuple[Callable[[], Any], tuple[int, int], tuple[str, ...], bool]] = {
    "training-80x24": (training, (80, 24), (), False),
    "training-120x40": (training, (120, 40), (), False),
    "training-200x50": (training, (200, 50), (), False),
    "training-40x10": (training, (40, 10), (), False),
    "ascii-80x24": (training, (80, 24), (), True),
    "fast-120x34": (fast, (120, 34), ("minus",), False),
    "cursor-100x30": (training, (100, 30), ("left",) * 20, False),
    "paused-80x24": (training, (80, 24), ("p",), False),
    "starting-80x24": (starting, (80, 24), (), False),
    "ended-100x30": (ended, (100, 30), (), False),
    "replay-100x30": (recording, (100, 30), ("left",) * 9, False),
    "events-80x24": (training, (80, 24), ("2",), False),
    "step-80x24": (recorded_step, (80, 24), ("4",), False),
    "step-120x40": (recorded_step, (120, 40), ("4", "left", "left", "b", "b", "down", "down"), False),
    "step-modules-200x50": (recorded_step, (200, 50), ("4", "y", "b", "b", "b", "b"), False),
    "step-ascii-80x24": (recorded_step, (80, 24), ("4", "end"), True),
    "step-none-80x24": (training, (80, 24), ("4",), False),
    "tensors-80x24": (training, (80, 24), ("5",), False),
    "tensors-120x40": (training, (120, 40), ("5",), False),
    "tensors-200x50": (training, (200, 50), ("5",), False),
    "tensors-ascii-120x30": (training, (120, 30), ("5", "pagedown"), True),
    "tensors-filtered-100x30": (training, (100, 30), ("5", "s", "c", "slash", *"h.11.", "enter"), False),
    "tensors-replay-80x24": (recorded_tensors, (80, 24), ("5",), False),
    "segments-80x24": (training, (80, 24), ("6",), False),
    "segments-120x40": (training, (120, 40), ("6", "f", *"1.5GiB", "enter"), False),
    "segments-200x50": (training, (200, 50), ("6", "s", "down", "down", "down"), False),
    "segments-ascii-80x24": (training, (80, 24), ("6", "f", *"64GiB", "enter"), True),
    "segments-batch-100x30": (recorded_step, (100, 30), ("6", "b", *"x2", "enter"), False),
    "segments-asking-80x24": (training, (80, 24), ("6", "f", *"6q1"), False),
    "segments-replay-80x24": (recorded_segments, (80, 24), ("6",), False),
    "quit-80x24": (supervised, (80, 24), ("q",), False),
    "help-100x40": (training, (100, 40), ("question_mark",), False),
    "meaning-80x24": (training, (80, 24), ("m",), False),
    "meaning-120x40": (training, (120, 40), ("m",), False),
    "meaning-none-80x24": (starting, (80, 24), ("m",), True),
    "what-if-80x24": (recorded_step, (80, 24), ("w",), False),
    "what-if-120x40": (recorded_step, (120, 40), ("w", *("down",) * 3), False),
    "what-if-full-100x30": (small_device, (100, 30), ("w", "down", "plus", "plus"), False),
    "what-if-ascii-80x24": (training, (80, 24), ("w", "down", "down"), True),
    "what-if-none-80x24": (starting, (80, 24), ("w",), False),
    "out-of-memory-80x24": (failed, (80, 24), ("o", "left"), False),
    "out-of-memory-120x40": (failed, (120, 40), ("o", "left"), False),
    "out-of-memory-200x50": (failed, (200, 50), ("o", "left"), False),
    "out-of-memory-ascii-80x24": (failed, (80, 24), ("o",), True),
    "out-of-memory-none-80x24": (training, (80, 24), ("o",), False),
    "out-of-memory-said-120x40": (failed, (120, 40), (), False),
    "glossary-120x50": (training, (120, 50), ("g",), False),
}


@pytest.mark.parametrize("name", CASES)
def test_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    import time

    time.tzset()
    make, size, keys, ascii_only = CASES[name]
    found: list[str] = []

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        for _ in range(3):
            await pilot.pause(0.05)
        await pilot.press(*keys)
        if app.screen is app.monitor:
            await settle(app, pilot)
        await pilot.pause()
        found.extend(text(app))

    drive(make(), test, size=size, ascii_only=ascii_only)
    path = FOLDER / f"{name}.txt"
    if os.environ.get("MEMTUI_UPDATE_SCREENS"):
        path.write_text("\n".join(found) + "\n", encoding="utf-8")
    assert found == path.read_text(encoding="utf-8").splitlines()
