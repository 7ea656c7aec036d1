"""A program that prints a megabyte a second, while its viewer watches, is absent, stopped or killed."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import statistics
import sys
import time
from collections.abc import Iterator

from memtui.sources.program_launch import launch

from . import surroundings
from .interval import interval
from .programs.printing import TURN_STEPS
from .report import Line
from .terminal import Terminal

SECONDS, STOPPED_SECONDS = 15.0, 60.0


def bench() -> Iterator[Line]:
    """Step times against those of turns in which the program prints to another terminal, or a pipe, that is drained."""
    with surroundings.runtime_folder() as runtime:
        file = runtime / "steps"
        environment = {**surroundings.plain(), "MEMTUI_RUNTIME_DIR": str(runtime)}
        program = [sys.executable, str(surroundings.PROGRAMS / "printing.py"), str(file)]
        with _sockets_in(runtime):
            start = launch(program, environment, str(runtime), pty=True)
        try:
            spans = {"no viewer": _wait()}
            viewer = [sys.executable, "-m", "memtui", "attach", "--pid", str(start.pid)]
            terminal = Terminal(viewer, environment)
            try:
                time.sleep(4)
                spans["a viewer watches"] = _wait()
                terminal.process.send_signal(signal.SIGSTOP)
                spans[f"the viewer is stopped for {STOPPED_SECONDS:g} s"] = _wait(STOPPED_SECONDS)
            finally:
                terminal.close()
            spans["the viewer was killed"] = _wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(start.pid, signal.SIGKILL)
        steps = [tuple(map(int, line.split())) for line in file.read_text().splitlines() if line.count(" ") == 3]
    for state, (begun, ended) in spans.items():
        turns = _turns([step for step in steps if begun <= step[2] < ended])
        ratio = interval([turn[1] / turn[2] for turn in turns])
        met = ratio.high < 1.01 or (ratio.sure and (ratio.has(1) or ratio.middle < 1.01))
        shown = f"{ratio.text(1, 3, '')} of a drained terminal's"
        yield Line(f"20 ms step, {state}", shown, "not told from 1, or < 1.01", met)
        shown = f"{interval([turn[1] / turn[0] for turn in turns]).text(1, 3, '')} of a drained pipe's"
        yield Line(f"20 ms step, {state}", shown)


def _wait(seconds: float = SECONDS) -> tuple[int, int]:
    """A span of the monotonic clock in which nothing is done here."""
    begun = time.monotonic_ns()
    time.sleep(seconds)
    return begun, time.monotonic_ns()


def _turns(steps: list[tuple[int, ...]]) -> list[dict[int, float]]:
    """Of each whole turn the median step by place."""
    found: dict[int, dict[int, list[int]]] = {}
    for turn, place, _, took in steps:
        found.setdefault(turn, {}).setdefault(place, []).append(took)
    whole = [turn for turn in found.values() if sorted(map(len, turn.values())) == [TURN_STEPS] * 3]
    return [{place: statistics.median(took) for place, took in turn.items()} for turn in whole]


@contextlib.contextmanager
def _sockets_in(folder: pathlib.Path) -> Iterator[None]:
    before = os.environ.get("MEMTUI_RUNTIME_DIR")
    os.environ["MEMTUI_RUNTIME_DIR"] = str(folder)
    try:
        yield
    finally:
        del os.environ["MEMTUI_RUNTIME_DIR"]
        if before is not None:
            os.environ["MEMTUI_RUNTIME_DIR"] = before
