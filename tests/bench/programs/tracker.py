"""Compares torch's own MemTracker at every boundary with what the program knows itself; prints JSON.

    tracker.py KIND

The program runs without the agent. A row tells what MemTracker says; the program's own categories; and, block by
block, whose a block is and what MemTracker takes it for: bytes by that pair, and how much larger blocks are than the
memory asked for, rounded up to 512 bytes, which is what MemTracker counts.
"""

from __future__ import annotations

import bisect
import json
import sys
from typing import Any

import torch
from categories import STEPS, Truth, warm
from torch.distributed._tools.mem_tracker import MemTracker

#: MemTracker's words for categories. It knows no inputs: what is made outside backward and optimizer is activation.
_MEANT = {
    "Parameter": "parameters",
    "Buffer": "buffers",
    "Gradient": "gradients",
    "Optstate": "optimizer_state",
    "Activation": "activations",
    "Temp": "temporaries",
    "Other": "inputs",
}
_BOUNDARIES = {"forward": "forward_start", "backward": "backward_start", "optimizer": "optimizer_start"}
UNSEEN = "unseen"
_ROUNDED = 512


class Comparison:
    """Rows, made where the program says that a phase begins."""

    def __init__(self, truth: Truth, tracker: Any) -> None:
        self.rows: list[dict[str, Any]] = []
        self._truth, self._tracker = truth, tracker
        self._phase = "between"

    def say(self, phase: str) -> None:
        """The program is in `phase` from now on."""
        if phase == "forward":
            self._tracker.reset_mod_stats()  # it knows one iteration at a time, and says so
        ended, self._phase = self._phase, phase
        kind = "optimizer_end" if ended == "optimizer" else _BOUNDARIES.get(phase)
        if kind is not None:
            with torch._C._DisableTorchDispatch():  # looking is no part of what is tracked
                self.rows.append({"boundary": kind, **self._row()})
        self._truth.say(phase)

    def _row(self) -> dict[str, Any]:
        blocks = sorted(self._truth.blocks(), key=lambda block: block.address)
        starts = [block.address for block in blocks]
        taken: dict[int, str] = {}
        for storage, (info, _) in list(self._tracker._WINFO.items()):
            place = bisect.bisect_right(starts, storage.data_ptr()) - 1
            if info.mem_consumed and storage.device.type == "cuda" and place >= 0:
                taken[starts[place]] = _MEANT[info.reftype.value]
        truth: dict[str, int] = {}
        pairs: dict[str, int] = {}
        larger: dict[str, int] = {}
        for block in blocks:
            known = taken.get(block.address, UNSEEN)
            pair = f"{block.category} > {known}"
            truth[block.category] = truth.get(block.category, 0) + block.size
            pairs[pair] = pairs.get(pair, 0) + block.size
            if known != UNSEEN:
                counted = -(-block.requested // _ROUNDED) * _ROUNDED
                larger[known] = larger.get(known, 0) + block.size - counted
        snapshot = self._tracker.get_tracker_snapshot().get(torch.device("cuda", 0), {})
        said = {_MEANT[name.value]: size for name, size in snapshot.items() if name != "Total"}
        return {"tracker": said, "truth": truth, "pairs": pairs, "larger": larger}


def main() -> None:
    """Trains, and compares."""
    training, truth = warm(sys.argv[1])
    tracker = MemTracker()
    tracker.track_external(*training.models, *training.optimizers)
    comparison = Comparison(truth, tracker)
    with tracker:
        for _ in range(STEPS):
            comparison.rows.clear()  # what had been made before it was switched on is of no category
            training.step(comparison.say)
    print(json.dumps({"rows": comparison.rows}))


if __name__ == "__main__":
    main()
