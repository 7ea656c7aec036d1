"""What a recorded step, done again by the simulated allocator, says of the peaks of a training, against what came.

Each program is a session of `memtui run --headless --log`; the step that was recorded unasked and the frames until
then are read back from the log. Beside it stands the naive forecast: the highest figure until that step had ended.
Then the same from an empty allocator, the optimizer's state being still to come: as for a program that starts afresh.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple, Optional

from memtui.analysis.allocator.course import Addition, prepared
from memtui.analysis.allocator.replay import Replayed, StepReplay, replayed
from memtui.sources.log_reader import LogReader
from memtui.wire.frames import RecordedStep

from . import surroundings
from .report import Line, at_most

_PROGRAM = str(surroundings.PROGRAMS / "forecasts" / "loops.py")
_STEPS = 20
_MIB = 1 << 20
#: Until the frame of a step's end; the next step begins later.
_FRAME_NS = 20_000_000
#: DESIGN's bar.
_MEDIAN, _WORST = 0.1, 5.0
#: Its batches differ in length, which no single step can tell: it counts for no bar.
_UNTOLD = frozenset(("GPT, any length",))
#: Kinds that are also run with other settings of the allocator.
_SETTINGS = {
    "": None,
    "expandable_segments:True": ("GPT, AdamW foreach", "four tasks, any order", "ResNet, AMP"),
    "max_split_size_mb:64": ("GPT, AdamW foreach", "LSTM, RMSprop"),
    "roundup_power2_divisions:4": ("GPT, checkpointed",),
}


class Peaks(NamedTuple):
    """Bytes of live tensors and of segments."""

    allocated: int
    reserved: int


class Forecast(NamedTuple):
    """What was predicted, what came, and what a naive forecast had said."""

    predicted: Peaks
    actual: Peaks
    naive: Peaks
    first: Peaks  # of the first step alone
    afresh: Peaks
    replay: Replayed


def bench() -> Iterator[Line]:
    """A line a program, then the bars over all of them, allocated and reserved together."""
    off: list[float] = []
    afresh: list[float] = []
    for settings, kinds in _SETTINGS.items():
        for kind in kinds or _kinds():
            found = measure(kind, settings)
            name = f"{kind}, {settings}" if settings else kind
            if found is None:
                yield Line(name, "no step was recorded", "", False)
                continue
            yield line(name, found)
            if kind not in _UNTOLD:
                off += map(abs, errors(found.predicted, found.actual))
                afresh += map(abs, errors(found.afresh, found.actual))
    yield at_most("after a recorded step: median error", statistics.median(off), _MEDIAN, "%")
    yield at_most("after a recorded step: worst error", max(off), _WORST, "%")
    yield Line("from nothing: median and worst error", f"{statistics.median(afresh):.3f} % and {max(afresh):.2f} %")


def _kinds() -> list[str]:
    with surroundings.runtime_folder() as runtime:
        environment = surroundings.with_virtual_gpu(runtime, agent=False)
        words = "from tests.bench.programs.forecasts.loops import KINDS; print('\\n'.join(KINDS))"
        done = subprocess.run(
            [sys.executable, "-c", words], env=environment, capture_output=True, text=True, check=True
        )
    return done.stdout.splitlines()


def measure(kind: str, settings: str = "") -> Optional[Forecast]:
    """One program's session; None where its log has no recorded step."""
    with surroundings.runtime_folder() as runtime:
        environment = surroundings.with_virtual_gpu(runtime, agent=False)
        if settings:
            environment["PYTORCH_CUDA_ALLOC_CONF"] = settings
        log, facts = runtime / "log", runtime / "facts"
        program = (sys.executable, _PROGRAM, kind, str(_STEPS), str(facts))
        command = (sys.executable, "-m", "memtui", "run", "--headless", "--quiet", "--log", str(log), "--", *program)
        subprocess.run(command, env=environment, capture_output=True, timeout=300, check=True)
        rows = [json.loads(row) for row in facts.read_text(encoding="utf-8").splitlines()]
        return forecast(log, [Peaks(row["peak_allocated_bytes"], row["peak_reserved_bytes"]) for row in rows])


def forecast(log: pathlib.Path, peaks: list[Peaks]) -> Optional[Forecast]:
    """From a log and what the program said of its peaks after each step."""
    reader = LogReader(str(log))
    try:
        recorded = next(iter(reader.whole.recorded("cuda:0")), None)
        if recorded is None or recorded.heap is None:
            return None
        told = reader.session_at(recorded.time_ns + recorded.duration_ns + _FRAME_NS).device_frame("cuda:0")
    finally:
        reader.close()
    found = replayed(recorded, steps=len(peaks) - recorded.step)
    so_far = Peaks(told.allocated_peak_bytes or 0, told.reserved_peak_bytes or 0) if told else Peaks(0, 0)
    fresh = from_nothing(recorded)
    return Forecast(
        predicted=Peaks(
            max(so_far.allocated, found.peak_allocated_bytes), max(so_far.reserved, found.peak_reserved_bytes)
        ),
        actual=peaks[-1],
        naive=peaks[recorded.step],
        first=peaks[0],
        afresh=Peaks(fresh.peak_allocated_bytes, fresh.peak_reserved_bytes),
        replay=found,
    )


def from_nothing(recorded: RecordedStep) -> Replayed:
    """The same steps in a new process, in the first of which the optimizer makes its state."""
    state = [
        number
        for number, row in enumerate(recorded.blocks)
        if row[0] < 0 and recorded.categories[row[3]] == "optimizer_state"
    ]
    begins = next((mark.event for mark in recorded.marks if mark.phase == "optimizer"), len(recorded.event_us))
    asked = recorded.heap.asked_bytes if recorded.heap is not None else ()
    additions = [Addition(begins, asked[number] or recorded.blocks[number][2]) for number in state]
    replay = StepReplay(prepared(recorded, additions), from_empty=True, absent=state)
    for _ in replay.run(_STEPS):
        pass
    return replay.result


def errors(predicted: Peaks, actual: Peaks) -> tuple[float, float]:
    """In percent, allocated and reserved."""
    allocated, reserved = (100 * (said - came) / came for said, came in zip(predicted, actual))
    return allocated, reserved


def line(name: str, found: Forecast) -> Line:
    """Allocated and reserved: predicted and actual MiB, then the errors of this and of the other forecasts."""
    said, came = ("/".join(f"{size / _MIB:,.1f}" for size in peaks) for peaks in (found.predicted, found.actual))
    parts = (
        "/".join(f"{error:+.2f}" for error in errors(peaks, found.actual))
        for peaks in (found.predicted, found.naive, found.afresh, found.first)
    )
    own, naive, afresh, first = parts
    replay = found.replay
    places = "every address" if replay.exact else f"{replay.same_place} of {replay.compared} addresses"
    return Line(
        name,
        f"{said} of {came} MiB: {own} %, naive {naive}, from nothing {afresh}, first step {first}; "
        f"{places}, {'steady' if replay.steady else 'rising'}, {len(replay.steps)} steps",
    )
