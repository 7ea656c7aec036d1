"""The peaks of batches larger than all recorded ones, foretold from steps of other sizes, against what came.

Each program is a session of `memtui run --headless --log`; the steps that were recorded unasked are read back from the
log. Beside it stands one straight line through the peaks of all steps before. A forecast that is refused counts as
none, and not as wrong.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

from memtui.analysis.shapes.asked import AskedShape
from memtui.analysis.shapes.outlook import outlook_now
from memtui.session.readings import ShapeForecast
from memtui.session.steps import step_number
from memtui.sources.log_reader import LogReader

from . import surroundings
from .report import Line, at_most

_PROGRAM = str(surroundings.PROGRAMS / "shapes.py")
_LARGE_STEPS = 4
_FACTORS = (2, 4)
_MIB = 1 << 20
#: DESIGN's bar for a forecast after a recorded step.
_WORST = 5.0
_WORST_ALLOCATED, _MEDIAN_RESERVED = 1.0, 1.0


class Found(NamedTuple):
    """What was foretold, and the figures of each step."""

    forecast: Optional[ShapeForecast]
    recorded: tuple[int, ...]  # by their numbers
    cost_ms: float  # of the training's time, the dearest recorded step
    steps: list[dict[str, Any]]

    @property
    def actual(self) -> tuple[int, int]:
        """The highest of the large steps, allocated and reserved."""
        large = self.steps[-_LARGE_STEPS:]
        return max(row["allocated_bytes"] for row in large), max(row["reserved_bytes"] for row in large)


def bench() -> Iterator[Line]:
    """A line a program and factor, then the worst of those that were foretold."""
    allocated: list[float] = []
    reserved: list[float] = []
    lines: list[float] = []
    for kind in _kinds():
        for factor in _FACTORS:
            found = measure(kind, factor)
            yield line(f"{kind}, {factor} x", found)
            if found.forecast is not None and not found.forecast.reason:
                off = errors(found)
                allocated.append(abs(off[0]))
                reserved.append(abs(off[1]))
                lines.append(abs(line_error(found)))
    yield at_most("larger batches: allocated, worst error", max(allocated), _WORST_ALLOCATED, "%")
    yield at_most("larger batches: reserved, median error", statistics.median(reserved), _MEDIAN_RESERVED, "%")
    yield at_most("larger batches: reserved, worst error", max(reserved), _WORST, "%")
    yield Line("one line through the steps' peaks: worst error", f"{max(lines):.1f} %")


def _kinds() -> list[str]:
    with surroundings.runtime_folder() as runtime:
        environment = surroundings.with_virtual_gpu(runtime, agent=False)
        words = "from tests.bench.programs.shapes import KINDS; print('\\n'.join(KINDS))"
        done = subprocess.run(
            [sys.executable, "-c", words], env=environment, capture_output=True, text=True, check=True
        )
    return done.stdout.splitlines()


def measure(kind: str, factor: float) -> Found:
    """One program's session."""
    with surroundings.runtime_folder() as runtime:
        environment = surroundings.with_virtual_gpu(runtime, agent=False)
        log, facts = runtime / "log", runtime / "facts"
        program = (sys.executable, _PROGRAM, kind, str(factor), str(facts))
        command = (sys.executable, "-m", "memtui", "run", "--headless", "--quiet", "--log", str(log), "--", *program)
        subprocess.run(command, env=environment, capture_output=True, timeout=600, check=True)
        steps = [json.loads(row) for row in facts.read_text(encoding="utf-8").splitlines()]
        return _foretold(log, steps)


def _foretold(log: pathlib.Path, steps: list[dict[str, Any]]) -> Found:
    reader = LogReader(str(log))
    try:
        recorded = reader.whole.recorded("cuda:0")
    finally:
        reader.close()
    asked = AskedShape("the large one", input_bytes=steps[-1]["input_bytes"])
    found = [each for each in outlook_now(recorded, asked) if each.asked]
    numbers = tuple(step_number(each.step) for each in recorded)
    cost_ms = max((each.cost_ns for each in recorded), default=0) / 1e6
    return Found(found[0] if found else None, numbers, cost_ms, steps)


def errors(found: Found) -> tuple[float, float]:
    """In percent, allocated and reserved."""
    forecast, (allocated, reserved) = found.forecast, found.actual
    assert forecast is not None
    said = forecast.allocated_bytes or 0, forecast.reserved_bytes or 0
    return 100 * (said[0] - allocated) / allocated, 100 * (said[1] - reserved) / reserved


def line_error(found: Found) -> float:
    """Of a straight line through the peaks of all smaller steps but the first two, in percent, allocated."""
    rows = found.steps[2:-_LARGE_STEPS]
    xs, ys = [row["size"] for row in rows], [row["allocated_bytes"] for row in rows]
    slope, constant = _line(xs, ys)
    said = slope * found.steps[-1]["size"] + constant
    return 100 * (said - found.actual[0]) / found.actual[0]


def _line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    x, y = statistics.fmean(xs), statistics.fmean(ys)
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)
    return slope, y - slope * x


def line(name: str, found: Found) -> Line:
    """Allocated and reserved: predicted and actual MiB, and the errors; or why nothing is foretold."""
    steps = "/".join(map(str, found.recorded))
    straight = f"one line {line_error(found):+.1f} %; steps {steps}, {found.cost_ms:.0f} ms at most"
    forecast = found.forecast
    if forecast is None or forecast.reason:
        return Line(name, f"none: {forecast.reason if forecast else 'nothing was recorded'}; {straight}")
    said = f"{(forecast.allocated_bytes or 0) / _MIB:,.1f}/{(forecast.reserved_bytes or 0) / _MIB:,.1f}"
    came = "/".join(f"{size / _MIB:,.1f}" for size in found.actual)
    own = "" if forecast.own_error_percent is None else f", own {forecast.own_error_percent:+.2f} %"
    off = "/".join(f"{error:+.2f}" for error in errors(found))
    return Line(name, f"{said} of {came} MiB at {forecast.factor:.2f} x the recorded: {off} %{own}; {straight}")
