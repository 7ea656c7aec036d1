"""A training that holds lazy clones, which share memory until one is written; it goes on until its input ends.

At the end it says of each whether it still shares it. `memtui.tag` is used where memtui can be imported.
"""

from __future__ import annotations

import json
import select
import sys
import time

import torch
from torch import nn

import memtui

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    base = torch.randn(1 << 20, device=DEVICE)
    held = {name: torch._lazy_clone(base) for name in ("parameter", "buffer", "state", "nested", "tagged", "gradient")}
    held["view"] = held["buffer"][1024:]
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).to(DEVICE)
    model.frozen = nn.Parameter(held["parameter"], requires_grad=False)
    model.register_buffer("kept", held["buffer"])
    model.register_buffer("part", held["view"])
    optimizer = torch.optim.Adam(model[:3].parameters())
    memtui.tag(held["tagged"], "clone")
    while not select.select([sys.stdin], [], [], 0)[0]:
        model(torch.randn(64, 256, device=DEVICE)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        optimizer.state[model[0].weight].update(lazy=held["state"], several=[held["nested"]])
        model.frozen.grad = held["gradient"]
        time.sleep(0.01)
    start = torch._C._data_address(base)
    told = {name: [torch._C._is_cow_tensor(each), torch._C._data_address(each) == start] for name, each in held.items()}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
