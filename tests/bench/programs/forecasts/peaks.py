"""What the peaks of a first and of a later step are made of, which tells why a forecast is off.

    peaks.py KIND

By torch's own history of allocations, on a virtual GPU, with no memtui in the program. Of each peak it says in which
phase it is, how many of the phase's allocations had been made by then, what is alive by the phase in which it was made,
and how much more the blocks take than was asked for, rounded up to 512 bytes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tests.bench.programs.forecasts.loops import kinds

_STEPS, _SHOWN = 3, (1, 3)
_ROUNDED = 512
_ENTRIES = 4_000_000
#: Where an allocation was asked for: so many of the innermost Python frames.
_FRAMES = 2
_LINES = 14


class Marks:
    """Phases, each of them a tensor of a size that nothing else has, so that the history has their beginnings."""

    _MARK_BYTES = 7

    def __init__(self) -> None:
        self.names: list[str] = []

    def say(self, name: str) -> None:
        """The phase of that name begins."""
        self.names.append(name)
        torch.empty(self._MARK_BYTES, dtype=torch.uint8, device="cuda")

    def events(self, trace: list[Any]) -> Iterator[tuple[str, Any]]:
        """Of a history, allocations and frees with the phase that they were made in."""
        names = iter(self.names)
        phase, marks = "build", set()
        for event in trace:
            if event["action"] == "alloc" and event["size"] == self._MARK_BYTES:
                phase = next(names)
                marks.add(event["addr"])
            elif event["action"] == "free_requested" and event["addr"] in marks:
                marks.discard(event["addr"])
            elif event["action"] in ("alloc", "free_requested"):
                yield phase, event


@dataclass
class Peak:
    """The most that was asked for in one step."""

    bytes: int = 0
    phase: str = ""
    place: int = 0  # of its allocation among the phase's
    alive: list[tuple[int, str, str]] = field(default_factory=list)  # bytes, phase, where


def main() -> None:
    kind = sys.argv[1]
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=_ENTRIES)
    marks = Marks()
    reached = _train(kind, marks)
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    peaks, made = _peaks(list(marks.events(trace)))
    print(kind)
    for step in _SHOWN:
        peak = peaks[step]
        whole = reached[step - 1]
        print(f"  step {step}: {whole:,} B, {whole - peak.bytes:,} of it by which blocks are larger; {peak.phase},")
        print(f"    at allocation {peak.place} of {made[peak.phase]}")
        _print_sums("    ", [(size, phase) for size, phase, _ in peak.alive])
        _print_sums("      ", [(size, f"{phase}: {where}") for size, phase, where in peak.alive])


def _train(kind: str, marks: Marks) -> list[int]:
    training = kinds()[kind]()
    plain = torch.Tensor.backward

    def backward(self: Any, *args: Any, **kwargs: Any) -> None:
        marks.say(f"step {step}, backward")
        plain(self, *args, **kwargs)
        marks.say(f"step {step}, after backward")

    hooks = [
        register_optimizer_step_pre_hook(lambda *_: marks.say(f"step {step}, optimizer")),
        register_optimizer_step_post_hook(lambda *_: marks.say(f"step {step}, after the optimizer")),
    ]
    torch.Tensor.backward = backward
    reached = []
    for step in range(1, _STEPS + 1):
        marks.say(f"step {step}, forward")
        torch.cuda.reset_peak_memory_stats()
        training.step()
        reached.append(torch.cuda.max_memory_allocated())
    torch.Tensor.backward = plain
    for hook in hooks:
        hook.remove()
    return reached


def _peaks(events: list[tuple[str, Any]]) -> tuple[dict[int, Peak], Counter[str]]:
    """The peak of each step, and how many allocations each phase has."""
    peaks = {step: Peak() for step in range(_STEPS + 1)}
    for look in ("how high", "what is there"):
        alive: dict[int, tuple[int, str, str]] = {}
        made: Counter[str] = Counter()
        held = 0
        for phase, event in events:
            if event["action"] == "free_requested":
                held -= alive.pop(event["addr"], (0, "", ""))[0]
                continue
            size = -(-event["size"] // _ROUNDED) * _ROUNDED
            alive[event["addr"]] = size, phase, _where(event)
            held += size
            made[phase] += 1
            peak = peaks[_step(phase)]
            if look == "how high" and held > peak.bytes:
                peak.bytes, peak.phase, peak.place = held, phase, made[phase]
            elif (held, phase, made[phase]) == (peak.bytes, peak.phase, peak.place):
                peak.alive = list(alive.values())
    return peaks, made


def _step(phase: str) -> int:
    return int(phase.partition(",")[0].partition(" ")[2]) if phase.startswith("step") else 0


def _where(event: Any) -> str:
    frames = event.get("frames") or []
    names = [f"{frame['filename'].rpartition('/')[2]}:{frame['line']} {frame['name']}" for frame in frames[:_FRAMES]]
    return ", in ".join(names) or "autograd's thread"


def _print_sums(indent: str, parts: list[tuple[int, str]]) -> None:
    sums: Counter[str] = Counter()
    for size, name in parts:
        sums[name] += size
    for name, size in sums.most_common(_LINES):
        print(f"{indent}{size:>15,}  {name}")


if __name__ == "__main__":
    main()
