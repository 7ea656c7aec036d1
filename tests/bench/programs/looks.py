"""What one look at the categories takes on the training's thread, and what torch's own snapshot takes of it; JSON.

looks.py LAYERS
looks.py --parameters COUNT

A GPT of so many layers, or a chain of linear layers that has so many parameters.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from memtui.examples.gpt import GPT

ROUNDS = 60
#: Steps in which each boundary is looked at, and as many in which torch's snapshot alone is taken there.
STEPS = 24
_KINDS = ("forward_start", "backward_start", "optimizer_start", "optimizer_end")


def thread_seconds(function: Callable[[], Any], times: list[float]) -> Any:
    """What `function` returns; its processor time on this thread is added to `times`."""
    begun = time.thread_time_ns()
    found = function()
    times.append((time.thread_time_ns() - begun) / 1e9)
    return found


class Chain(nn.Module):
    """Linear layers one after the other, with a weight and a bias each."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(parameters // 2)))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Boundaries:
    """From now on every boundary is looked at; in every other step only torch's snapshot is taken there."""

    def __init__(self, observer: Any) -> None:
        self.looks: dict[str, list[float]] = {kind: [] for kind in _KINDS}
        self.snapshots: dict[str, list[float]] = {kind: [] for kind in _KINDS}
        self.blocks: dict[str, int] = {}
        self.snapshot_only = False
        self._looks = observer.looks
        for budget in (observer.looks._budget, observer.readings._budget):
            budget.wait_ns = lambda _cost, _now: 0
        observer.readings.due = lambda _now: True
        observer._quiet = 0
        observer.looks.between = lambda *_: {}
        self._at_boundary = observer.looks.at_boundary
        observer.looks.at_boundary = self._timed

    def _timed(self, kind: str, *arguments: Any, **named: Any) -> Any:
        if self.snapshot_only:
            thread_seconds(snapshot_of(self._looks), self.snapshots[kind])
            return {}
        found = thread_seconds(lambda: self._at_boundary(kind, *arguments, **named), self.looks[kind])
        if found:
            self.blocks[kind] = len(found["cuda:0"].blocks.live)
        else:
            self.looks[kind].pop()
        return found


def snapshot_of(looks: Any) -> Callable[[], Any]:
    """Torch's own snapshot, as the agent asks for it."""
    snapshot: Callable[[], Any] = looks._reader.snapshot
    return snapshot


def training(arguments: list[str]) -> tuple[Any, Callable[[], Any], Callable[[Any], None]]:
    """A model, its forward, and what goes on from the loss."""
    model: Any
    if arguments[0] == "--parameters":
        model = Chain(int(arguments[1])).cuda()
        rows = torch.randn(4, 64).cuda()

        def forward() -> Any:
            return model(rows).sum()
    else:
        model = GPT(64, int(arguments[0]), 128, 4, 64).cuda()
        tokens = torch.randint(0, 64, (2, 64)).cuda()

        def forward() -> Any:
            return functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    optimizer = torch.optim.AdamW(model.parameters())

    def backward(loss: Any) -> None:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, forward, backward


def main() -> None:
    """Trains a little, looks again and again between a forward and its backward, then at each boundary of steps."""
    model, forward, backward = training(sys.argv[1:])
    observer: Any = sys.modules["_memtui_agent_of_this_process"].agent.observer  # type: ignore[attr-defined]
    for _ in range(3):
        backward(forward())
    while observer.readings.on_host:  # the device that is used now is not known yet
        backward(forward())
    looks, phases = observer.looks, observer.phases
    loss = forward()
    again: dict[str, list[float]] = {"looks": [], "snapshots": []}
    blocks = 0
    for _ in range(ROUNDS):
        found = thread_seconds(
            lambda: looks._look("backward_start", phases, time.monotonic_ns(), "forward", finished=False),
            again["looks"],
        )
        blocks = len(found["cuda:0"].blocks.live)
        del found
        thread_seconds(snapshot_of(looks), again["snapshots"])
    backward(loss)
    del loss
    boundaries = Boundaries(observer)
    for number in range(2 * STEPS):
        boundaries.snapshot_only = number % 2 == 1
        backward(forward())
    result = {
        "blocks": blocks,
        "parameters": sum(1 for _ in model.parameters()),
        "again": again,
        "boundaries": {
            kind: {
                "blocks": boundaries.blocks[kind],
                "looks": boundaries.looks[kind],
                "snapshots": boundaries.snapshots[kind],
            }
            for kind in _KINDS
            if kind in boundaries.blocks
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
