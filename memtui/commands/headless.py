"""A line a second instead of the app."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any, Optional, Union

from memtui.analysis.build import build_view
from memtui.analysis.headline import farewell, headline
from memtui.analysis.shapes.outlook import shape_lines
from memtui.analysis.verdict import end_text
from memtui.analysis.view import View
from memtui.sources.monitor import Monitor

from .exhausted import Errors
from .headless_ranks import RankLines
from .ownline import OwnLines

if TYPE_CHECKING:
    from memtui.sources.gathered import Gathered
    from memtui.sources.ranks import Ranks

    Watched = Union[Monitor, Ranks, Gathered]

_PERIOD_SECONDS = 1.0
_STALE_SECONDS = 1.5


def pick_device(monitor: Watched, wanted: Optional[str]) -> str:
    """The device that was asked for, once the process uses it; else the one with most memory."""
    names = {device.device for device in monitor.session.devices}
    return wanted if wanted is not None and wanted in names else monitor.session.default_device()


def view_of(monitor: Watched, device: Optional[str]) -> View:
    """What is to be said now."""
    return build_view(monitor.session, pick_device(monitor, device), monitor.now_ns())


async def print_lines(
    monitor: Watched,
    lines: OwnLines,
    frames: Optional[int],
    device: Optional[str],
    stopped: asyncio.Event,
    *,
    at_once: bool = False,
) -> bool:
    """Starts the monitor and prints until the process ends, `frames` lines are out, or `stopped` is set.

    The first line comes after a second; `at_once` as soon as there are figures, should that be earlier.
    True where the process ended. Without a stream for the lines seconds are counted all the same.
    """
    begun_s = time.time()
    await monitor.start()
    try:
        printed, trouble = 0, ""
        shapes: tuple[str, ...] = ()
        ends = [asyncio.ensure_future(monitor.ended()), asyncio.ensure_future(stopped.wait())]
        due = time.monotonic()
        if at_once:
            await _first_figures(monitor, [*ends])
            due = time.monotonic() - _PERIOD_SECONDS
        # Each is told as of when it came, and not of when there is a line to be printed.
        errors = Errors(monitor)
        monitor.on_change = errors.look
        ranks = None if isinstance(monitor, Monitor) else RankLines(monitor)
        while frames is None or printed < frames:
            # Not before there is something to say: the first line of a program that has only just begun is empty.
            due += _PERIOD_SECONDS
            await asyncio.wait(ends, timeout=max(0.0, due - time.monotonic()), return_when=asyncio.FIRST_COMPLETED)
            if ends[0].done() or ends[1].done():
                break
            side_by_side = ranks if ranks is not None and ranks.several else None
            if side_by_side is None:
                lines.say(f"memtui: {_line(monitor, device)}")
            else:
                side_by_side.say(lines)
            printed += 1
            errors.tell(lines)
            trouble = _tell_trouble(monitor, trouble, lines)
            shapes = _tell_shapes(monitor, device, shapes, lines)
        ended = ends[0].done()
        for task in ends:
            task.cancel()
        errors.look()
        errors.tell(lines)
        if ended:
            errors.tell_kept(begun_s, lines)
        if ended:
            _tell_shapes(monitor, device, shapes, lines)
            if not isinstance(monitor, Monitor) and ranks is not None and ranks.several:
                ranks.farewell(lines)
                if monitor.launcher is not None and monitor.launcher.end is not None:
                    lines.say(f"memtui: {end_text(monitor.launcher.end)}")
            else:
                lines.say(f"memtui: {farewell(view_of(monitor, device))}")
        return ended
    finally:
        await monitor.stop()
        _tell_trouble(monitor, trouble, lines)


def _line(monitor: Watched, device: Optional[str]) -> str:
    line = headline(view_of(monitor, device), time.time())
    frame = monitor.session.frame
    age_s = 0.0 if frame is None else (monitor.now_ns() - frame.time_ns) / 1e9
    if monitor.session.connection == "lost" and age_s > _STALE_SECONDS:
        line += f" · these figures are {age_s:.0f} s old"
    # Where there are no figures, why not is all there is to say.
    silence = monitor.agent_silence if monitor.session.hello is None else ""
    return f"{line} · {silence}" if silence else line


def _tell_trouble(monitor: Watched, told: str, lines: OwnLines) -> str:
    """Says once, whatever is printed else, that the log ends."""
    if monitor.log_trouble and not told:
        OwnLines(sys.stderr, shared=lines.shared).say(f"memtui: {monitor.log_trouble}")
    return monitor.log_trouble


def _tell_shapes(monitor: Watched, device: Optional[str], told: tuple[str, ...], lines: OwnLines) -> tuple[str, ...]:
    """Says what is new of batches of other sizes."""
    now = shape_lines(monitor.session.shapes(pick_device(monitor, device)))
    for line in now:
        if line not in told:
            lines.say(f"memtui: {line}")
    return now


def _has_news(monitor: Watched) -> bool:
    frame = monitor.session.frame
    return frame is not None and monitor.now_ns() - frame.time_ns < _PERIOD_SECONDS * 1e9


async def _first_figures(monitor: Watched, ends: list[asyncio.Future[Any]]) -> None:
    """Waits for the first frame that is not of the past, no longer than for a line."""
    changed = asyncio.Event()
    monitor.on_change = changed.set
    end = time.monotonic() + _PERIOD_SECONDS
    while not _has_news(monitor) and time.monotonic() < end and not any(task.done() for task in ends):
        changed.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(changed.wait(), max(0.0, end - time.monotonic()))
    monitor.on_change = None
