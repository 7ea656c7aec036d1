"""First steps of every optimizer on the virtual GPU; prints for each what it would be tried with, and what was real."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from memtui.agent.identity import device_and_bytes
from memtui.agent.recipes import recipe_of
from memtui.sources.optimizer_trials import request_of

BLOCK_BYTES = 512
#: What one takes to be made, where that is more than its parameters.
_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "SGD": [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "fused": True}],
    "Adam": [{}, {"amsgrad": True}, {"fused": True}, {"foreach": False}, {"capturable": True}],
    "AdamW": [{}, {"fused": True}, {"foreach": False, "amsgrad": True}],
    "RMSprop": [{}, {"momentum": 0.5, "centered": True}],
    "Adagrad": [{}, {"foreach": False}],
    "LBFGS": [{}, {"history_size": 5, "max_iter": 30}],
}


def kinds() -> list[Any]:
    """The optimizers of this torch."""
    found = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    return [kind for kind in found if kind.__name__ not in {"Optimizer", "SparseAdam"}]


def state_blocks(optimizer: Any) -> dict[int, int]:
    """Bytes of the device's blocks by storage."""
    found: dict[int, int] = {}

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            if value.is_cuda and storage.nbytes():
                found[storage.data_ptr()] = -(-storage.nbytes() // BLOCK_BYTES) * BLOCK_BYTES
        elif isinstance(value, (dict, list, tuple)):
            for item in value.values() if isinstance(value, dict) else value:
                add(item)

    for held in optimizer.state.values():
        add(held)
    return found


def tell(kind: Any, options: dict[str, Any]) -> None:
    """One optimizer: its request, its real state, and the most that steps have added."""
    model = torch.nn.Sequential(torch.nn.Linear(300, 700), torch.nn.Linear(700, 90), torch.nn.Linear(90, 3)).cuda()
    matrices = [one for one in model.parameters() if one.ndim == 2]
    optimizer = kind(matrices if kind.__name__ == "Muon" else model.parameters(), **options)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    recipe = recipe_of(optimizer, device_and_bytes)
    assert recipe is not None
    asked = request_of(recipe, "cuda:0")
    before, added = sum(state_blocks(optimizer).values()), []
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        begun = torch.cuda.memory_allocated()
        if kind.__name__ == "LBFGS":
            break  # kernels compute nothing here: it would see that it has converged
        optimizer.step()
        added.append(torch.cuda.max_memory_allocated() - begun)
    real = sum(state_blocks(optimizer).values()) - before
    print(json.dumps({"name": f"{kind.__name__} {options}", "asked": asked, "state": real, "added": added}))


def main() -> None:
    """All of them."""
    for kind in kinds():
        for options in _OPTIONS.get(kind.__name__, [{}]):
            tell(kind, options)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
