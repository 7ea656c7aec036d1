"""The app on a terminal of 120x40, watching a 12-layer transformer whose memory swings by gigabytes."""

from __future__ import annotations

import contextlib
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Optional

import memtui.examples
from memtui.wire import paths

from . import surroundings
from .report import Line, at_most
from .terminal import Terminal

SECONDS = 20.0
#: From this age on the chart has the window that it keeps.
AGE_SECONDS = 75.0
PAINTS = 5
_GPT = pathlib.Path(memtui.examples.__file__).with_name("gpt.py")


def bench() -> Iterator[Line]:
    """First paint, then processor time, traffic and memory; shown, paused and on another tab."""
    with surroundings.runtime_folder() as runtime, _training(runtime) as pid:
        begun = time.monotonic()
        command = [sys.executable, "-m", "memtui", "attach", "--pid", str(pid)]
        environment = {**surroundings.plain(), "MEMTUI_RUNTIME_DIR": str(runtime)}
        _paint(command, environment)  # byte code and the disk's cache
        painted, figures = zip(*(_paint(command, environment) for _ in range(PAINTS)))
        yield at_most(f"first paint, median of {PAINTS}", statistics.median(painted), 0.9, "s", 2)
        yield Line(f"first figures, median of {PAINTS}", f"{statistics.median(figures):.2f} s")
        terminal = Terminal(command, environment)
        try:
            time.sleep(5)  # it has started, and has drawn the history
            cpu, traffic = _watch(terminal, SECONDS / 2)
            yield Line("a young session, whose chart moves fast", f"{cpu:.4f} s/s, {traffic / 1024:.2f} KB/s")
            time.sleep(max(0.0, begun + AGE_SECONDS - time.monotonic()))
            cpu, traffic = _watch(terminal)
            yield at_most("processor time at 10 Hz, one process", cpu, 0.03, "s/s", 4)
            yield at_most("terminal traffic at 10 Hz", traffic / 1024, 16, "KB/s", 2)
            yield at_most("resident memory", terminal.rss_bytes() / 1e6, 60, "MB", 1)
            for name, key, back in (("paused", "p", "p"), ("on the events tab", "2", "1")):
                terminal.press(key)
                time.sleep(1)
                cpu, traffic = _watch(terminal, SECONDS / 2)
                yield Line(name, f"{cpu:.4f} s/s, {traffic / 1024:.2f} KB/s")
                terminal.press(back)
        finally:
            terminal.close()
        for rate, cpu_bar, traffic_bar in ((2, None, 2), (1, 0.015, None)):
            yield from _slow(command, environment, rate, cpu_bar, traffic_bar)


def _slow(
    command: list[str], environment: dict[str, str], rate: int, cpu_bar: Optional[float], traffic_bar: Optional[float]
) -> Iterator[Line]:
    terminal = Terminal([*command, "--rate", str(rate)], environment)
    try:
        time.sleep(5)
        cpu, traffic = _watch(terminal)
    finally:
        terminal.close()
    shown = f"drawn at {rate} Hz"
    yield _barred(f"processor time, {shown}", cpu, cpu_bar, "s/s", 4)
    yield _barred(f"terminal traffic, {shown}", traffic / 1024, traffic_bar, "KB/s", 2)


def _barred(what: str, value: float, bar: Optional[float], unit: str, digits: int) -> Line:
    return Line(what, f"{value:.{digits}f} {unit}") if bar is None else at_most(what, value, bar, unit, digits)


@contextlib.contextmanager
def _training(runtime: pathlib.Path) -> Iterator[int]:
    command = [sys.executable, str(_GPT), "--pace", "0.9"]
    environment = surroundings.with_virtual_gpu(runtime)
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as child:
        try:
            path = runtime / paths.agent_socket_name(child.pid)
            while not path.exists():
                assert child.poll() is None, "the training ended"
                time.sleep(0.05)
            time.sleep(8)  # the first steps
            yield child.pid
        finally:
            child.kill()


def _paint(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds from the start until the last line is there, and until the figures are."""
    terminal = Terminal(command, environment, screen=True)
    try:
        return terminal.until("quit"), terminal.until("quit", "GiB", "optimizer")
    finally:
        terminal.close()


def _watch(terminal: Terminal, seconds: float = SECONDS) -> tuple[float, float]:
    """Processor seconds and bytes a second over a while."""
    cpu, received, begun = terminal.cpu_seconds(), terminal.received, time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - begun
    return (terminal.cpu_seconds() - cpu) / took, (terminal.received - received) / took
