"""Attention without heads, of elementary operations, as two courses' participants measured it.

attention.py STORED:BATCH:SEQUENCE:WIDTH ...

Allocated just before a backward pass, after one that has been. `both` has a softmax of its own, which keeps the
exponentials, their maxima's places and their sums beside the weights, and gradients from the pass before; `weights` has
torch's softmax, which keeps the weights alone, keeps what attention returned, and has no gradients yet.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from figures import say


def own_softmax(scores: torch.Tensor) -> torch.Tensor:
    """Over the last dimension."""
    shifted = scores - torch.max(scores, dim=-1, keepdim=True)[0]
    grown = torch.exp(shifted)
    return grown / torch.sum(grown, dim=-1, keepdim=True)


def attention(query: Any, key: Any, value: Any, softmax: Any) -> torch.Tensor:
    """Of (batch, sequence, width), three times, to the same shape."""
    scores = torch.einsum("bqd,bkd->bqk", query, key) / math.sqrt(query.shape[-1])
    return torch.einsum("bqk,bkd->bqd", softmax(scores), value)


def before_backward(kind: str, batch: int, sequence: int, width: int, allocated: Callable[[], int]) -> int:
    """Bytes, of which `allocated` tells."""
    given = [torch.randn(batch, sequence, width, device="cuda", requires_grad=True) for _ in range(3)]
    if kind == "both":
        for _ in range(2):
            loss = attention(*given, own_softmax).sum()
            found = allocated()
            loss.backward()
        return found
    for _ in range(2):
        for one in given:
            one.grad = None
        result = attention(*given, lambda scores: torch.softmax(scores, dim=-1))
        found = allocated()
        result.sum().backward()
    return found


def followed(kind: str, batch: int, sequence: int, width: int) -> int:
    """What torch's own MemTracker says that is allocated, from fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode():
        tracker = MemTracker()
        with tracker:
            return before_backward(
                kind, batch, sequence, width,
                lambda: sum(
                    kinds["Total"] for device, kinds in tracker.get_tracker_snapshot().items() if device.type == "cuda"
                ),
            )  # fmt: skip


def main() -> None:
    """Every size in one process."""
    figures = {}
    for name in sys.argv[1:]:
        if name == "--tracker":
            continue
        kind, *sizes = name.split(":")
        if "--tracker" in sys.argv:
            figures[name] = followed(kind, *map(int, sizes))
            continue
        torch.cuda.empty_cache()
        figures[name] = before_backward(kind, *map(int, sizes), torch.cuda.memory_allocated)
    if "--tracker" in sys.argv:
        print(json.dumps({"torch": torch.__version__, **figures}))
    else:
        say(**figures)


if __name__ == "__main__":
    main()
