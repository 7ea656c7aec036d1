"""A program that prints a megabyte a second, while its viewer watches, is absent, stopped or killed."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import signal
import statistics
import sys
import time
from collections.abc import Iterator

from memtui.sources.program_launch import launch

from . import surroundings
from .interval import Interval, interval
from .report import Line
from .terminal import Terminal

SECONDS = 15.0


def bench() -> Iterator[Line]:
    """Step times against the same program's when it prints into a pipe that is drained, in turns of half a second."""
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
                spans["the viewer is stopped"] = _wait()
            finally:
                terminal.close()
            spans["the viewer was killed"] = _wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(start.pid, signal.SIGKILL)
        steps = [tuple(map(int, line.split())) for line in file.read_text().splitlines() if line.count(" ") == 2]
    for state, (begun, ended) in spans.items():
        ratio = _ratio([step for step in steps if begun <= step[0] < ended])
        met = ratio.has(1) or ratio.median < 1.01
        yield Line(f"step time, {state}", f"{ratio.text(1, 3, '')} of the pipe's", "not told from 1, or < 1.01", met)


def _wait() -> tuple[int, int]:
    """A span of the monotonic clock in which nothing is done here."""
    begun = time.monotonic_ns()
    time.sleep(SECONDS)
    return begun, time.monotonic_ns()


def _ratio(steps: list[tuple[int, ...]]) -> Interval:
    """Of the blocks' medians, each with the one that follows it."""
    blocks = [
        (place, statistics.median(step[2] for step in block))
        for place, block in ((place, list(block)) for place, block in itertools.groupby(steps, lambda step: step[1]))
        if len(block) > 10
    ]
    pairs = [dict(pair) for pair in zip(blocks[::2], blocks[1::2]) if pair[0][0] != pair[1][0]]
    return interval([pair[1] / pair[0] for pair in pairs])


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
