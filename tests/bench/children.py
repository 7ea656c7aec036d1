"""What the agent's environment costs Python children that never train."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from memtui.agent import environment as with_agent

from . import surroundings
from .interval import interval
from .report import Line

PAIRS = 20
BAR_SECONDS = 0.005


def bench() -> Iterator[Line]:
    """`python -c pass`, and `python -c "import torch"` where there is torch."""
    yield from _pairs("pass")
    if importlib.util.find_spec("torch") is not None:
        yield from _pairs("import torch")


def _pairs(code: str) -> Iterator[Line]:
    with surroundings.runtime_folder() as runtime:
        without = {**surroundings.bare(), "MEMTUI_RUNTIME_DIR": str(runtime)}
        environments = (without, with_agent(without))
        for environment in environments:
            _run(code, environment)
        wall, cpu = [], []
        for pair in range(PAIRS):
            order = (0, 1) if pair % 2 else (1, 0)
            found = {place: _run(code, environments[place]) for place in order}
            wall.append(found[1][0] - found[0][0])
            cpu.append(found[1][1] - found[0][1])
    added, processor = interval(wall), interval(cpu)
    met = added.low <= BAR_SECONDS and processor.middle <= BAR_SECONDS
    name = f'python -c "{code}"'
    yield Line(f"{name}: added wall, ms, {PAIRS} pairs", added.text(1e3, 2), "≤ 5 ms", met)
    yield Line(f"{name}: added processor time, ms", processor.text(1e3, 2))


def _run(code: str, environment: dict[str, str]) -> tuple[float, float]:
    """Wall and processor seconds of a child."""
    begun = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-c", code], env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    took = time.perf_counter() - begun
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return took, usage.ru_utime + usage.ru_stime
