"""How long a training that never steps an optimizer waits while it is looked for, and its heap searched; prints JSON.

discovery.py OBJECTS
"""

from __future__ import annotations

import gc
import json
import sys
import time
from typing import Any

import torch
from torch import nn

ROUNDS = 12


class Row:
    """A few objects that the garbage collector knows."""

    def __init__(self, number: int) -> None:
        self.values = [number]
        self.names = {"number": [number]}


def main() -> None:
    """Fills the heap, trains by hand, and searches again and again."""
    model: Any = nn.Sequential(*(nn.Linear(16, 16) for _ in range(50))).cuda()
    rows = torch.ones(4, 16).cuda()
    kept: list[Row] = []
    while (missing := int(sys.argv[1]) - len(gc.get_objects())) > 0:
        kept += [Row(number) for number in range(1 + missing // 4)]
    observer: Any = sys.modules["_memtui_agent_of_this_process"].agent.observer  # type: ignore[attr-defined]
    inventory = observer.inventory
    discovery = sys.modules[type(inventory).__module__].discovery  # type: ignore[attr-defined]
    scan, made_optimizers = discovery.scan, discovery.made_optimizers
    found, optimizers = [], []

    def counted(torch: Any) -> Any:
        found.append(scan(torch))
        return found[-1]

    def timed(torch: Any) -> Any:
        begun = time.perf_counter_ns()
        made = made_optimizers(torch)
        optimizers.append((time.perf_counter_ns() - begun) / 1e9)
        return made

    discovery.scan, discovery.made_optimizers = counted, timed
    for _ in range(3):
        model(rows).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.01 * parameter.grad)
                parameter.grad = None
    if not found:  # nothing is missing here that a search might find: it is made as if there were
        inventory.search(observer.phases, time.monotonic_ns())
    in_training, pauses = [each.pause_ns / 1e9 for each in found], []
    for _ in range(ROUNDS):
        begun = time.thread_time_ns()
        counted(torch)
        pauses.append((time.thread_time_ns() - begun) / 1e9)
    result = {
        "objects": found[-1].objects,
        "complete": found[-1].complete,
        "in_training": in_training,
        "optimizers": optimizers,
        "pauses": pauses,
        "roots": len(found[0].roots),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
