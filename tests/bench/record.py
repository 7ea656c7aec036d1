"""What recording an allocator's history adds to the steps that are recorded, and to those after it.

One training on a virtual GPU with the agent in it, which a viewer asks for a step again and again: each recorded step,
with the one before it, at whose end the history is switched on, is beside the steps before those; and so are the steps
after it, while what was recorded is read and sent. What is recorded costs the training's thread processor time, which
is told as a share of the step's length; what comes after costs it nothing but Python's lock: there its length tells.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from memtui.sources.history_client import History, ask_history
from memtui.wire import paths

from . import surroundings
from .interval import Interval, interval
from .report import Line

#: Seconds that a step waits, whether its bar is meant for it, and how often it is recorded. The first is that of a
#: device that computes nothing: no step of a GPU is that short beside its allocations.
CASES = ((0.0, False, 12), (0.016, True, 32), (0.08, True, 24))
BAR, AFTER_BAR = 15.0, 0.01
#: Steps before the recorded ones that they are compared with, and those after it.
_BESIDE, _AFTER = 10, 8


def bench() -> Iterator[Line]:
    """A recorded step, and the steps after it."""
    for seconds, has_bar, count in CASES:
        with surroundings.runtime_folder() as runtime:
            steps, histories = _measure(seconds, count, runtime)
        yield from _lines(steps, histories[1:], has_bar)


def _measure(seconds: float, count: int, runtime: pathlib.Path) -> tuple[list[tuple[int, int]], list[History]]:
    command = [sys.executable, str(surroundings.PROGRAMS / "recorded.py"), str(seconds)]
    environment = surroundings.with_virtual_gpu(runtime)
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        path = runtime / paths.agent_socket_name(child.pid)
        while not path.exists() and child.poll() is None:
            time.sleep(0.05)
        time.sleep(4.0)  # the agent knows the program by then
        histories = []
        for _ in range(count):
            histories.append(ask_history(path, 1))
            time.sleep(max(0.6, (_BESIDE + _AFTER) * seconds))
        printed, _ = child.communicate(b"end\n")
    return [(wall, cpu) for wall, cpu in json.loads(printed)], histories


def _recorded(taken: list[int], usual_ns: float, histories: list[History]) -> Interval:
    """The share of a step that a recorded one took more of something than the steps before it."""
    shares = []
    for history in histories:
        begun, count = history.figures["step"], history.figures["steps"]
        before = statistics.median(taken[max(0, begun - 2 - _BESIDE) : begun - 2])
        longer = sum(taken[begun - 1 : begun + count]) - (count + 1) * before
        shares.append(longer / count / usual_ns)
    return interval(shares)


def _after(walls: list[int], usual_ns: float, histories: list[History]) -> Interval:
    """The share of a step that those after a recorded one were longer than as many before it, in the middle."""
    shares = []
    for history in histories:
        begun, end = history.figures["step"] - 2, history.figures["step"] + history.figures["steps"]
        after, before = walls[end : end + _AFTER], walls[max(0, begun - _AFTER) : begun]
        shares.append((statistics.median(after) - statistics.median(before)) / usual_ns)
    return interval(shares)


def _lines(steps: list[tuple[int, int]], histories: list[History], has_bar: bool) -> Iterator[Line]:
    walls, cpus = ([step[place] for step in steps] for place in (0, 1))
    usual_ns = statistics.median(walls)
    bare = sum("stacks were left out" in " ".join(each.notices) for each in histories)
    size = f"{usual_ns / 1e6:.1f} ms step"
    stacks = "with stacks" if not bare else "without stacks" if bare == len(histories) else f"{bare} without stacks"
    events = histories[-1].figures["events"]
    held = statistics.median(history.figures["cost_ns"] for history in histories) / 1e6
    yield Line(size, f"{events:,} events, {len(histories)} times, {stacks}; held {held:.1f} ms")
    recorded, longer = _recorded(cpus, usual_ns, histories), _recorded(walls, usual_ns, histories)
    what, note = f"{size}: added to the recorded one, %", f"{recorded.text(100)}; wall {longer.text(100)}"
    yield Line(what, note, f"≤ {BAR:g} %" if has_bar else "", 100 * recorded.middle <= BAR if has_bar else None)
    after = _after(walls, usual_ns, histories)
    met = after.high < AFTER_BAR or (after.sure and after.low <= 0)
    what, bar = f"{size}: added to each of the {_AFTER} after it, %", "not told from 0, or < 1 %"
    yield Line(what, after.text(100), bar if has_bar else "", met if has_bar else None)
