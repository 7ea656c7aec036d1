"""How long the command line takes to say something."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from . import surroundings
from .report import Line, at_most

RUNS = 10


def bench() -> Iterator[Line]:
    """`memtui --help`."""
    command = [sys.executable, "-m", "memtui", "--help"]
    environment = surroundings.plain()
    _seconds(command, environment)
    times = [_seconds(command, environment) for _ in range(RUNS)]
    yield at_most(f"memtui --help, median of {RUNS}", statistics.median(times), 0.12, "s")


def _seconds(command: list[str], environment: dict[str, str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun
