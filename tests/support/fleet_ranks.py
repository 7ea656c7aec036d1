"""Simulated ranks: figures of a recorded training, replayed by each in its own size and at its own point of a step.

What is simulated is the fleet, not the course: that is a real one's. All of it is a function of time, so that the past
can be written down as well.
"""

from __future__ import annotations

import bisect
import json
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

RECORDING = pathlib.Path(__file__).resolve().parent.parent / "recordings" / "varying-batch.log"
GIB = 1 << 30
CAPACITY_BYTES = 80 * GIB
_CONTEXT_BYTES = 512 << 20
_SMALLEST_BYTES = 512  # of which sizes are multiples, and stay so
_WINDOW_S = 60.0
#: The recorded training is a small one with short steps.
_SLOWER = 3.0
_SILENT_AFTER_S = 3.0

COUNTERS = ("allocated", "reserved", "active", "requested", "inactive_split", "allocated_peak", "reserved_peak")


@dataclass(frozen=True)
class Moment:
    """A recorded frame: seconds since the first, bytes by counter and by category."""

    time_s: float
    step: int
    phase: str
    step_s: float
    last_step_s: float
    counters: dict[str, int]
    last_step_peak: int
    categories: dict[str, int]


class Course:
    """The recorded steps, over and over again."""

    def __init__(self, path: pathlib.Path = RECORDING) -> None:
        frames = [frame for line in path.read_text().splitlines() if (frame := _gpu_frame(json.loads(line)))]
        # Whole steps only, so that the end goes over into the beginning; the first one is unlike the others.
        first, last = 2, int(frames[-1][0]["step"])
        whole = [(frame, device) for frame, device in frames if first <= frame["step"] < last]
        begun_ns = whole[0][0]["time_ns"]
        end_ns = next(frame["time_ns"] for frame, _ in frames if frame["step"] == last)
        self.seconds = (end_ns - begun_ns) / 1e9 * _SLOWER
        self.steps = last - first
        self.moments = [_moment(frame, device, begun_ns) for frame, device in whole]
        self._times = [moment.time_s for moment in self.moments]
        self.peak = max(moment.last_step_peak for moment in self.moments)
        self.reserved = max(moment.counters["reserved"] for moment in self.moments)

    def at(self, elapsed_s: float) -> tuple[Moment, int, float]:
        """What was so long after the beginning, how many steps were over by then, and when its round began."""
        rounds, within_s = divmod(elapsed_s, self.seconds)
        moment = self.moments[max(0, bisect.bisect_right(self._times, within_s) - 1)]
        steps = int(rounds) * self.steps + moment.step - self.moments[0].step
        return moment, steps, rounds * self.seconds


def _gpu_frame(line: dict[str, Any]) -> Optional[tuple[dict[str, Any], dict[str, Any]]]:
    if line["kind"] != "frame" or "cuda:0" not in line["devices"]:
        return None
    device = line["devices"]["cuda:0"]
    return (line, device) if "categories" in device and "last_step_ns" in line else None


def _moment(frame: dict[str, Any], device: dict[str, Any], begun_ns: int) -> Moment:
    return Moment(
        time_s=(frame["time_ns"] - begun_ns) / 1e9 * _SLOWER,
        step=frame["step"],
        phase=frame["phase"],
        step_s=(frame["step_since_ns"] - begun_ns) / 1e9 * _SLOWER,
        last_step_s=frame["last_step_ns"] / 1e9 * _SLOWER,
        counters={name: device[f"{name}_bytes"] for name in COUNTERS},
        last_step_peak=device["last_step_peak_bytes"],
        categories=device["categories"],
    )


@dataclass(frozen=True)
class Planted:
    """Ranks that are not as they should be, by number; None plants none of that kind."""

    full: Optional[int] = None  # 1 % of the device is left, and every round a request is tried again
    large: Optional[int] = None  # a quarter more than the others of its stage, and yet less than the first stage's
    silent: Optional[int] = None  # its host is scraped on, but no frames come any more
    leaking: Optional[int] = None  # every step leaves 24 MiB behind; there is still room
    exhausted: Optional[int] = None  # ends, out of memory, when the silent one falls silent

    @classmethod
    def usual(cls, ranks: int, stages: int, *, more: bool = False) -> Planted:
        """Three, each in a stage of its own where there are as many; `more` adds a leak and an end."""
        part = ranks // stages
        last = (stages - 1) * part
        two = (last + part // 3, last + part // 2 + 1) if more else (None, None)
        return cls(part // 2, last + part // 4, min(stages // 2, stages - 1) * part + part // 5, *two)


@dataclass
class Rank:
    """One rank of the fleet; times are Unix times."""

    rank: int
    world: int
    stage: int
    stages: int
    local: int
    course: Course
    begun: float
    planted: Planted
    silent_at: float
    pid: int = field(init=False)
    uuid: str = field(init=False)

    def __post_init__(self) -> None:
        self.pid = 20_000 + self.rank
        self.uuid = f"GPU-5f2c1d9e-0000-4000-8000-{self.rank:012d}"
        # The first stage of a pipeline keeps the activations of most micro-batches: from 0.85 of a device to 0.5.
        share = 0.85 - 0.35 * self.stage / max(1, self.stages - 1)
        share *= 1 + 0.004 * ((self.rank * 7919) % 11 - 5) / 5
        if self.rank == self.planted.full:
            share = 0.99 - _CONTEXT_BYTES / CAPACITY_BYTES
        elif self.rank == self.planted.large:
            share *= 1.25
        self._units = int(share * CAPACITY_BYTES / self.course.reserved * _SMALLEST_BYTES)
        # They wait for each other, so no rank is more than a fraction of a step ahead.
        self._shift_s = ((self.rank * 104_729) % 97) / 97 * 0.4

    def _sized(self, recorded_bytes: int) -> int:
        return recorded_bytes // _SMALLEST_BYTES * self._units

    def has_ended(self, now: float) -> bool:
        """Whether its process is over."""
        return self.rank == self.planted.exhausted and now > self.silent_at

    def state(self, now: float) -> str:
        """One of the states that an exposition knows."""
        if self.has_ended(now):
            return "ended"
        silent = self.rank == self.planted.silent and now > self.silent_at + _SILENT_AFTER_S
        return "silent" if silent else "live"

    def figures(self, now: float) -> dict[str, float]:
        """Values by name, without "memtui_"; those with another label are "name|label"."""
        still = self.rank in (self.planted.silent, self.planted.exhausted)
        seen = min(now, self.silent_at) if still else now
        elapsed_s = max(0.0, seen - self.begun)
        moment, steps, round_s = self.course.at(elapsed_s + self._shift_s)
        leaked = steps * (24 << 20) % (8 * GIB) if self.rank == self.planted.leaking else 0
        sized = {name: self._sized(value) + leaked for name, value in moment.counters.items()}
        peak, reserved = self._sized(self.course.peak) + leaked, self._sized(self.course.reserved) + leaked
        categories = {name: self._sized(value) for name, value in moment.categories.items()}
        # What is not of a multiple of the smallest size stands where a classification is not exact, too.
        categories["unattributed"] += sized["allocated"] - sum(categories.values())
        predicted = reserved + _CONTEXT_BYTES
        full = self.rank == self.planted.full
        figures: dict[str, float] = {f"{name}_bytes": value for name, value in sized.items()}
        figures |= {
            "allocated_window_peak_bytes": peak if elapsed_s > 1 else sized["allocated"],
            "last_step_peak_bytes": self._sized(moment.last_step_peak) + leaked,
            "process_device_bytes": sized["reserved"] + _CONTEXT_BYTES,
            "predicted_peak_allocated_bytes": peak,
            "predicted_peak_device_bytes": predicted,
            "capacity_bytes": CAPACITY_BYTES,
            "headroom_bytes": CAPACITY_BYTES - predicted,
            "last_step_seconds": moment.last_step_s,
            "forward_seconds": moment.last_step_s * 0.3,
            "step_since_timestamp_seconds": self.begun - self._shift_s + round_s + moment.step_s,
            "frame_timestamp_seconds": seen,
            "resident_bytes": 3 * GIB + self.rank * 4096,
            "steps_total": steps,
            "ooms_total": int(self.has_ended(now)),
            "alloc_retries_total": steps // self.course.steps if full else 0,
            "lost_frames_total": 0,
        }
        figures |= {f"category_bytes|{name}": value for name, value in categories.items()}
        figures[f"phase|{moment.phase}"] = 1
        figures[f"state|{self.state(now)}"] = 1
        figures["events_total|alloc_retry"] = figures["alloc_retries_total"]
        figures["events_total|new_peak"] = 3
        if self.has_ended(now):
            figures["ends_total|oom"] = figures["events_total|oom"] = 1
        if self.rank == self.planted.leaking:
            figures |= {"leak_bytes_per_step": 24 << 20, "steps_left": (CAPACITY_BYTES - predicted) // (24 << 20)}
        return figures


def ranks_of(
    count: int, stages: int, hosts: int, begun: float, *, planted: Planted, silent_at: float, course: Course
) -> list[list[Rank]]:
    """By host; a stage is a run of neighbours, as where pipelines are the outermost of a training's dimensions."""
    each = -(-count // hosts)
    return [
        [
            Rank(rank, count, rank * stages // count, stages, local, course, begun, planted, silent_at)
            for local, rank in enumerate(range(host * each, min(count, (host + 1) * each)))
        ]
        for host in range(hosts)
    ]


def stage_of(ranks: Sequence[Sequence[Rank]]) -> dict[int, int]:
    """The stage of each rank by its number, which the exposition does not tell."""
    return {rank.rank: rank.stage for host in ranks for rank in host}
