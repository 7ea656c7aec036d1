"""A program of `programs/forecasts` under `memtui run --headless --log`, and what the viewer foretells of its peaks."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

from memtui.analysis.allocator.course import Addition, prepared
from memtui.analysis.allocator.replay import Replayed, StepReplay, replayed
from memtui.analysis.firststep import Peaks as Foretold
from memtui.analysis.firststep import after_forward, before_optimizer
from memtui.sources.log_reader import LogReader
from memtui.wire.frames import RecordedStep

from . import surroundings

STEPS = 20
_DEVICE = "cuda:0"
_PROGRAM = str(surroundings.PROGRAMS / "forecasts" / "loops.py")
#: Until the frame of a step's end; the next step begins later.
_FRAME_NS = 20_000_000
_SECONDS, _TRIAL_SECONDS, _RECORDED_SECONDS = 400.0, 130.0, 20.0
#: The viewer tries out no smaller optimizer of torch's own.
_TRIED_BYTES = 64 << 20


class Early(NamedTuple):
    """The peak allocated, and what it is if gradients stay from one pass to the next, while that is not known."""

    bytes_held: int
    kept_bytes: Optional[int]

    def nearer(self, actual: int) -> int:
        """Of the two, the one that came true."""
        both = [self.bytes_held, *([] if self.kept_bytes is None else [self.kept_bytes])]
        return min(both, key=lambda said: abs(said - actual))


class Peaks(NamedTuple):
    """Bytes of live tensors and of segments."""

    allocated: int
    reserved: int


class Sample(NamedTuple):
    """One frame's, of those in a log."""

    time_ns: int
    step: int
    boundary: str
    allocated_bytes: int


class Forecast(NamedTuple):
    """After a recorded step: what was predicted, what a naive forecast had said, and from an empty allocator."""

    predicted: Peaks
    naive: Peaks
    afresh: Peaks
    replay: Replayed


@dataclass(frozen=True)
class Session:
    """What one program did and what was foretold; None is a forecast that was not made."""

    facts: dict[str, Any]
    peaks: list[Peaks]  # after each step
    samples: list[Sample]
    after_forward: Optional[Early]
    before_optimizer: Optional[Early]
    recorded: Optional[Forecast]
    untried: bool  # an optimizer's trial was waited for in vain

    @property
    def actual(self) -> Peaks:
        """The peaks in the end."""
        return self.peaks[-1]


def measure(kind: str, settings: str = "") -> Session:
    """One program's session; raises subprocess.CalledProcessError where it fails."""
    with surroundings.runtime_folder() as runtime:
        environment = surroundings.with_virtual_gpu(runtime, agent=False)
        if settings:
            environment["PYTORCH_CUDA_ALLOC_CONF"] = settings
        log, facts = runtime / "log", runtime / "facts"
        program = (sys.executable, _PROGRAM, kind, str(STEPS), str(facts))
        command = (sys.executable, "-m", "memtui", "run", "--headless", "--quiet", "--log", str(log), "--", *program)
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            _until_over(process, log, facts)
            pathlib.Path(f"{facts}.over").touch()
            _, told = process.communicate(timeout=_SECONDS)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, stderr=told)
        return session_of(log, facts)


def _until_over(process: subprocess.Popen[bytes], log: pathlib.Path, facts: pathlib.Path) -> None:
    """Until all steps have been made and the log has what the viewer needs time for."""
    begun = time.monotonic()
    while process.poll() is None and time.monotonic() - begun < _SECONDS:
        if facts.exists() and len(facts.read_bytes().splitlines()) > STEPS:
            break
        time.sleep(0.2)
    begun = time.monotonic()
    while process.poll() is None and time.monotonic() - begun < _TRIAL_SECONDS:
        lines = list(_lines(log))
        recorded = any(line["kind"] == "recorded_step" for line in lines)
        waited = time.monotonic() - begun > _RECORDED_SECONDS
        if not _trials_to_come(lines) and (recorded or waited):
            break
        time.sleep(0.5)


def _trials_to_come(lines: list[dict[str, Any]]) -> int:
    to_try = {
        (optimizer["recipe"]["where"], size)
        for line in lines
        if line["kind"] == "model"
        for optimizer in line["optimizers"]
        if optimizer.get("recipe")
        for device, size in optimizer["trainable_bytes"].items()
        if device == _DEVICE and (size >= _TRIED_BYTES or not optimizer["recipe"]["where"].startswith("torch.optim."))
    }
    tried = [line for line in lines if line["kind"] == "optimizer_trial"]
    return len(to_try) - len(tried)


def _lines(log: pathlib.Path) -> Iterator[dict[str, Any]]:
    for line in log.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield json.loads(line)


def session_of(log: pathlib.Path, facts: pathlib.Path) -> Session:
    """From a log and what the program said of its peaks after each step."""
    first, *rows = (json.loads(row) for row in facts.read_text(encoding="utf-8").splitlines())
    peaks = [Peaks(row["peak_allocated_bytes"], row["peak_reserved_bytes"]) for row in rows]
    lines = list(_lines(log))
    reader = LogReader(str(log))
    try:
        return Session(
            facts=first,
            peaks=peaks,
            samples=sorted(_samples(lines)),
            after_forward=_early(after_forward(reader.whole, _DEVICE)),
            before_optimizer=_early(before_optimizer(reader.whole, _DEVICE)),
            recorded=_after_recorded(reader, peaks),
            untried=_trials_to_come(lines) > 0,
        )
    finally:
        reader.close()


def _early(foretold: Optional[Foretold]) -> Optional[Early]:
    if foretold is None:
        return None
    return Early(max(foretold.first_bytes, foretold.later_bytes), foretold.kept_bytes)


def _samples(lines: list[dict[str, Any]]) -> Iterator[Sample]:
    for line in lines:
        device = line.get("devices", {}).get(_DEVICE) if line["kind"] == "frame" else None
        if device is not None and device.get("allocated_bytes") is not None:
            yield Sample(line["time_ns"], line["step"], line.get("boundary") or "", device["allocated_bytes"])


def _after_recorded(reader: LogReader, peaks: list[Peaks]) -> Optional[Forecast]:
    recorded = next(iter(reader.whole.recorded(_DEVICE)), None)
    if recorded is None or recorded.heap is None:
        return None
    told = reader.session_at(recorded.time_ns + recorded.duration_ns + _FRAME_NS).device_frame(_DEVICE)
    torch = "" if reader.whole.hello is None else reader.whole.hello.torch
    found = replayed(recorded, torch=torch, steps=len(peaks) - recorded.step)
    so_far = Peaks(told.allocated_peak_bytes or 0, told.reserved_peak_bytes or 0) if told else Peaks(0, 0)
    fresh = from_nothing(recorded)
    return Forecast(
        predicted=Peaks(
            max(so_far.allocated, found.peak_allocated_bytes), max(so_far.reserved, found.peak_reserved_bytes)
        ),
        naive=peaks[recorded.step],
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
    for _ in replay.run(STEPS):
        pass
    return replay.result
