"""What the agent adds to a training step, phases and categories on: in one process, by what it consists of.

Steps with what torch calls of the agent, and without, in a random order; steps in which its thread was at work beside
those in which it was not, or where all have it, beside those in which it was held; steps that it has read at their
boundaries beside others. Comparing blocks of seconds with the agent and without does not tell a hundredth: the
machine's own speed changes by more in that time.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import math
import pathlib
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from memtui.wire import codec, frames, paths

from . import surroundings
from .interval import Interval
from .report import Line, at_most

STEP_SECONDS = (0.002, 0.02, 0.08)
#: How long each is trained.
_SECONDS = {0.002: 60.0, 0.02: 120.0, 0.08: 240.0}
#: A difference below this share of the step is none, however surely it is told from zero.
NEGLIGIBLE = 0.01
#: For so long after the agent's thread was at work, a step may still be slower for it: its caches are cold.
_AFTER_NS = 3_000_000
#: Of the steps that are alike, the share of the lowest and of the highest that is left out: the machine's own.
_TRIMMED = 0.1
_FEWEST = 8


def bench() -> Iterator[Line]:
    """Added wall and processor time a step, and the time in the agent's own calls."""
    for seconds in STEP_SECONDS:
        with surroundings.runtime_folder() as runtime:
            yield from lines(seconds, measure(seconds, runtime))


def measure(seconds: float, runtime: pathlib.Path) -> dict[str, Any]:
    """Runs the child, with a viewer that takes all it sends."""
    command = [sys.executable, str(surroundings.PROGRAMS / "steps.py"), str(seconds), str(_SECONDS[seconds])]
    environment = surroundings.with_virtual_gpu(runtime)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as child:
        threading.Thread(target=_drain, args=(runtime, child), daemon=True).start()
        assert child.stdout is not None
        report = child.stdout.read()
    if child.wait():
        raise RuntimeError(f"the training ended with status {child.returncode}")
    result: dict[str, Any] = json.loads(report)
    return result


def _drain(runtime: pathlib.Path, child: subprocess.Popen[bytes]) -> None:
    path = runtime / paths.agent_socket_name(child.pid)
    while not path.exists():
        if child.poll() is not None:
            return
        time.sleep(0.05)
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as viewer:
        viewer.connect(str(path))
        viewer.sendall(codec.encode(frames.Request("hello", protocol=frames.PROTOCOL, history=True)))
        while viewer.recv(1 << 16):
            pass


class Step(NamedTuple):
    """One step: seconds of wall and of the process's processor time, and what the agent did in it."""

    wall: float
    cpu: float
    on: bool  # torch called the agent
    read: bool  # counters and blocks were read at its boundaries
    ticked: bool  # the agent's thread was at work in it, or just before
    group: int


def lines(wanted: float, result: dict[str, Any]) -> Iterator[Line]:
    """One size's figures."""
    steps, ticks, together = _steps(result), len(result["ticks"]), result["paused"]
    usual = statistics.median(step.wall for step in steps if not step.on)
    lasted = (result["steps"][-1][1] - result["steps"][0][0]) / 1e9
    if together:
        lasted *= sum(step.wall for step in steps if step.on) / sum(step.wall for step in steps)
    read = sum(step.read for step in steps)
    size = f"{1e3 * wanted:g} ms step"
    about = f"{1e3 * usual:.1f} ms, {result['parameters']} parameters, {len(steps)} steps, {read} read, {ticks} ticks"
    yield Line(size, about, "≥ 8 read, ≥ 9 ticks a second", read >= 8 and ticks >= 9 * lasted)
    for name, shown in (("wall", "wall"), ("cpu", "processor time")):
        calls, reading, tick = _added(steps, name, ticks)
        share_read, ticks_a_step = read / sum(step.on for step in steps), ticks / lasted * usual
        each = _plus(calls, _times(reading, share_read), _times(tick, 0 if together else ticks_a_step))
        called = "calls and ticks" if together else f"a tick {tick.text(1e6, 0)}, calls"
        parts = f"{called} {calls.text(1e6)}, a step that is read {reading.text(1e6, 0)}"
        yield Line(f"{size}: added {shown}, µs", f"{each.text(1e6)}: {parts}")
        share = _times(each, 1 / usual)
        bar = "not told from 0, or < 1 %" if name == "wall" else "≤ +1 %" if wanted == 0.02 else ""
        none = name == "wall" and share.low <= 0  # of processor time the bar is the figure itself
        met = share.high < NEGLIGIBLE or (share.sure and (none or share.middle <= NEGLIGIBLE))
        yield Line(f"{size}: added {shown}, %", share.text(100, 2), bar, met if bar else None)
    own = [nanoseconds / 1e3 for nanoseconds in result["own"]]
    mean = f" (mean {statistics.mean(own):.0f}, {len(own)} steps)"
    yield at_most(f"{size}: in the agent's calls, median", statistics.median(own), 50, "µs", 1, mean)


def _steps(result: dict[str, Any]) -> list[Step]:
    ends = [ended + _AFTER_NS for _, ended in result["ticks"]]
    begins = [begun for begun, _ in result["ticks"]]
    found = []
    for begun, ended, cpu, on, read, group in result["steps"]:
        # The first tick whose effects were not over when the step began. Where steps that are off had none, all of
        # those that are on are alike.
        place = bisect.bisect_right(ends, begun)
        ticked = not result["paused"] and place < len(begins) and begins[place] < ended
        found.append(Step((ended - begun) / 1e9, cpu / 1e9, on, read, ticked, group))
    return found


def _added(steps: list[Step], name: str, ticks: int) -> tuple[Interval, Interval, Interval]:
    """Seconds more: in a step for what torch calls; in one that is read, beyond that; for a tick in all its steps.

    Always beside steps of the same group that are alike otherwise.
    """
    calls: list[float] = []
    reading: list[float] = []
    tick: list[float] = []
    for _, members in itertools.groupby(steps, key=lambda step: step.group):
        kinds: dict[_Kind, list[float]] = {}
        for step in members:
            kinds.setdefault((step.on, step.read, step.ticked), []).append(getattr(step, name))
        means = {kind: statistics.mean(values) for kind, values in kinds.items()}
        for ticked in (False, True):
            _beside(calls, means, (True, False, ticked), (False, False, ticked))
            _beside(reading, means, (True, True, ticked), (True, False, ticked))
        for on in (False, True):
            if (on, False, False) in means:
                tick += [value - means[on, False, False] for value in kinds.get((on, False, True), ())]
    share = sum(step.ticked for step in steps) / ticks
    return _interval(calls), _interval(reading), _times(_interval(tick), share)


_Kind = tuple[bool, bool, bool]


def _beside(into: list[float], means: dict[_Kind, float], one: _Kind, other: _Kind) -> None:
    if one in means and other in means:
        into.append(means[one] - means[other])


def _interval(values: list[float]) -> Interval:
    if len(values) < _FEWEST:
        return Interval(0, -math.inf, math.inf)  # too few to say anything
    middle, error = _mean(values)
    return Interval(middle, middle - 1.96 * error, middle + 1.96 * error)


def _mean(values: list[float]) -> tuple[float, float]:
    """Without the lowest and the highest, and its standard error: that of the values with those pulled in."""
    cut = int(_TRIMMED * len(values))
    ordered = sorted(values)
    low, high = ordered[cut], ordered[-1 - cut]
    pulled = [min(max(value, low), high) for value in ordered]
    error = statistics.stdev(pulled) / ((1 - 2 * _TRIMMED) * math.sqrt(len(values)))
    return statistics.mean(ordered[cut : len(ordered) - cut]), error


def _times(interval: Interval, factor: float) -> Interval:
    if not factor:
        return Interval(0, 0, 0)
    return Interval(interval.middle * factor, interval.low * factor, interval.high * factor)


def _plus(*intervals: Interval) -> Interval:
    """The sum of what was measured independently."""
    middle = sum(each.middle for each in intervals)
    below = math.hypot(*(each.middle - each.low for each in intervals))
    above = math.hypot(*(each.high - each.middle for each in intervals))
    return Interval(middle, middle - below, middle + above)
