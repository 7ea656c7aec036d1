"""Compares the agent's categories at every boundary with what the program knows itself; prints JSON.

    categories.py [KIND]

What the program knows: its own tensors by name, and of every other block in which phase it was allocated, from a
memory history that torch records since the start. The agent is made to look at every boundary of every step.
"""

from __future__ import annotations

import bisect
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import models
import torch

WARM_STEPS, STEPS, WATCHED = 3, 4, 2
_OWNED = ("parameters", "buffers", "gradients", "optimizer_state")
_BORN = {"forward": "activations", "backward": "temporaries", "optimizer": "temporaries", "between": "inputs"}


@dataclass(frozen=True)
class Block:
    """A block that the allocator has given away, and whose it is."""

    address: int
    size: int
    requested: int
    category: str


class Truth:
    """Which block is whose, from the program's own side."""

    def __init__(self, training: models.Training) -> None:
        self.training = training
        self.said: list[tuple[float, str]] = [(0.0, "between")]  # microseconds of the wall clock
        self.kept: dict[int, str] = {}  # from step to step, and nobody's: by address

    def say(self, phase: str) -> None:
        """The program is in `phase` from now on."""
        self.said.append((time.time() * 1e6, phase))

    def blocks(self) -> list[Block]:
        """Every live block now."""
        snapshot = torch._C._cuda_memorySnapshot(None)
        live = {
            block["address"]: block
            for segment in snapshot["segments"]
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        }
        born = {event["addr"]: event["time_us"] for event in snapshot["device_traces"][0] if event["action"] == "alloc"}
        owners = self._owners(sorted(live), {address: block["size"] for address, block in live.items()})
        private = {
            block["address"]
            for segment in snapshot["segments"]
            for block in segment["blocks"]
            if tuple(segment["segment_pool_id"]) != (0, 0)
        }
        found, starts = [], [at for at, _ in self.said]
        for address, block in live.items():
            category = owners.get(address)
            if category is None:
                phase = self.said[bisect.bisect_right(starts, born.get(address, 0)) - 1][1]
                born_as = "private_pools" if phase == "between" and address in private else _BORN[phase]
                category = self.kept.get(address) or born_as
            found.append(Block(address, block["size"], block["requested_size"], category))
        return found

    def categories(self) -> dict[str, int]:
        """Bytes by category now."""
        totals = dict.fromkeys((*_OWNED, *_BORN.values(), "workspaces", "communication", "private_pools"), 0)
        for block in self.blocks():
            totals[block.category] += block.size
        return totals

    def find_kept(self) -> None:
        """After a step: blocks with the size of a workspace or, with DDP, of one of its buckets."""
        workspace = torch._C._cuda_getCublasWorkspaceSize()
        buckets: list[int] = []
        for model in self.training.models:
            if isinstance(model, torch.nn.parallel.DistributedDataParallel):
                buckets += map(int, model._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(", "))
        for segment in torch._C._cuda_memorySnapshot(None)["segments"]:
            for block in segment["blocks"]:
                if block["state"] == "active_allocated" and block["size"] == workspace:
                    self.kept[block["address"]] = "workspaces"
                elif block["state"] == "active_allocated" and block["requested_size"] in buckets:
                    self.kept[block["address"]] = "communication"

    def _owners(self, starts: list[int], live: dict[int, int]) -> dict[int, str]:
        found: dict[int, str] = {}
        for category, tensors in self._tensors():
            for tensor in tensors:
                local = getattr(tensor, "_local_tensor", tensor)
                if not local.is_cuda or not local.untyped_storage().nbytes():
                    continue
                place = bisect.bisect_right(starts, local.data_ptr()) - 1
                if place >= 0 and local.data_ptr() < starts[place] + live[starts[place]]:
                    found.setdefault(starts[place], category)
        return found

    def _tensors(self) -> list[tuple[str, list[Any]]]:
        models_, optimizers = self.training.models, self.training.optimizers
        stepped = [each for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]]
        parameters = [*(each for model in models_ for each in model.parameters()), *stepped]
        gradients = [each.grad for each in parameters if each.grad is not None]
        buffers = [each for model in models_ for each in model.buffers()]
        state = [
            value
            for optimizer in optimizers
            for held in optimizer.state.values()
            for value in held.values()
            if torch.is_tensor(value)
        ]
        # What FSDP puts in the place of a shard while the module runs: whole, and no optimizer's.
        ids = set(map(id, stepped))
        whole = [each for each in parameters if self.training.sharded and id(each) not in ids]
        return [("communication", whole), *zip(_OWNED, (parameters, buffers, gradients, state))]


def warm(kind: str) -> tuple[Any, Truth]:
    """A training of this kind after its first steps, and what it knows itself of its memory, fully recorded."""
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(context=None, max_entries=2_000_000)
    training = models.KINDS[kind]()
    truth = Truth(training)
    for _ in range(WARM_STEPS):
        training.step(truth.say)
    truth.find_kept()
    return training, truth


def main() -> None:
    """Trains, and compares; without a kind prints all there are."""
    if len(sys.argv) < 2:
        print("\n".join(models.KINDS))
        return
    training, truth = warm(sys.argv[1])
    observer = sys.modules["_memtui_agent_of_this_process"].agent.observer  # type: ignore[attr-defined]
    rows: list[dict[str, Any]] = []
    watch(observer, truth, rows)
    torch.cuda.reset_peak_memory_stats()
    for step in range(STEPS):
        training.step(truth.say)
        if step < STEPS - WATCHED:
            # Those in which it was switched on: where optimizers alternate, the agent's step is not the program's.
            rows.clear()
    peak = torch.cuda.max_memory_allocated()
    print(json.dumps({"peak_bytes": peak, "rows": rows, "compiled": compiled()}))


def compiled() -> tuple[int, int]:
    """Graphs that torch.compile has made of the program, and where it could not go on."""
    found = sys.modules.get("torch._dynamo.utils")
    if found is None:
        return 0, 0
    return found.counters["stats"]["unique_graphs"], sum(found.counters["graph_break"].values())


def watch(observer: Any, truth: Truth, rows: list[dict[str, Any]]) -> None:
    """From now on every boundary is looked at, by the agent and, in the same instant, by the program."""
    looks, readings = observer.looks, observer.readings
    for budget in (looks._budget, readings._budget):
        budget.wait_ns = lambda _cost, _now: 0
    readings.due = lambda _now: True
    observer._quiet = 0
    looks.between = lambda *_: {}
    at_boundary = looks.at_boundary

    def both(kind: str, *arguments: Any, **named: Any) -> Any:
        found = at_boundary(kind, *arguments, **named)
        if found:
            rows.append({"boundary": kind, "agent": found["cuda:0"].categories, "truth": truth.categories()})
        return found

    looks.at_boundary = both
    looks._reader = sys.modules[type(looks).__module__].BlockReader(torch)  # type: ignore[attr-defined]
    looks._reader.recording = lambda: False  # else the program's own history would be left alone


if __name__ == "__main__":
    main()
