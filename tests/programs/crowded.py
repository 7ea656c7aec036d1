"""Has very many tensors, trains a little and catches errors: `crowded.py BLOCKS ERRORS`, counts collections in them."""

from __future__ import annotations

import gc
import sys
import threading

import torch

blocks, errors = map(int, sys.argv[1:])
device = "cuda"
collections = 0
failing = False


def counted(when: str, info: dict[str, int]) -> None:
    global collections
    if when == "start" and failing and threading.current_thread() is threading.main_thread():
        collections += 1


held = [torch.empty(16, device=device) for _ in range(blocks)]
model = torch.nn.Linear(64, 64).to(device)
optimizer = torch.optim.Adam(model.parameters())
gc.callbacks.append(counted)
for _ in range(errors):
    optimizer.zero_grad()
    model(torch.randn(8, 64, device=device)).sum().backward()
    optimizer.step()
    try:
        failing = True
        torch.empty(40 << 30, dtype=torch.uint8, device=device)
    except torch.cuda.OutOfMemoryError:
        failing = False
print(collections)
