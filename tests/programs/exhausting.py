"""Runs out of memory, catches the error and goes on; then allocates what is there only once the cache is given back."""

from __future__ import annotations

import sys
import time

import torch

GIB = 1 << 30


def blocks(count: int) -> list[torch.Tensor]:
    return [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(count)]


held = blocks(2)
print("ready", flush=True)
sys.stdin.readline()
try:
    torch.empty(100 * GIB, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    time.sleep(0.5)
del held
blocks(12)
large = torch.empty(20 * GIB, dtype=torch.uint8, device="cuda")
print(torch.cuda.memory_stats()["num_alloc_retries"], flush=True)
sys.stdin.readline()
