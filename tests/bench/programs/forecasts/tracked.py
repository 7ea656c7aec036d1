"""What torch's MemTracker says of two steps of each kind, on the same virtual GPU; prints a line of JSON a kind.

    tracked.py KIND...

Two, for the state that the first makes is there in the second; more change nothing. Each kind has a process of its
own, forked from one that has imported torch: what it refuses in the midst of a step leaves its hooks behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any

import torch
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn.modules.module import register_module_forward_pre_hook

from tests.bench.programs.forecasts.loops import kinds

_STEPS = 2


def peak_bytes(kind: str) -> int:
    """The peak of the steps by MemTracker."""
    training = kinds()[kind]()
    tracker = MemTracker()
    tracker.track_external(*training.models, *training.optimizers)
    _reset_between_passes(tracker, training.models)
    with tracker:
        for _ in range(_STEPS):
            training.step()
    snapshot = tracker.get_tracker_snapshot("peak")
    return max(int(sizes["Total"]) for device, sizes in snapshot.items() if torch.device(device).type == "cuda")


def _reset_between_passes(tracker: MemTracker, models: list[Any]) -> None:
    """It knows one pass through a module at a time, and says so: what it has of modules goes before one runs again."""
    roots, ran = set(models), set[Any]()

    def begins(module: Any, _: Any) -> None:
        if module in ran:
            tracker.reset_mod_stats()
            ran.clear()
        if module in roots:
            ran.add(module)

    register_module_forward_pre_hook(begins)  # before the tracker's own, which is made on entry


def main() -> None:
    for kind in sys.argv[1:]:
        if not (child := os.fork()):
            _answer(kind)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps({"kind": kind, "refused": f"it ended with status {status}"}), flush=True)


def _answer(kind: str) -> None:
    begun = time.monotonic()
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer: dict[str, Any] = {"peak_bytes": peak_bytes(kind)}
        except Exception as error:  # noqa: BLE001 - whatever it refuses with is its answer
            answer = {"refused": f"{type(error).__name__}: {error}"}
    print(json.dumps({"kind": kind, "seconds": time.monotonic() - begun, **answer}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
