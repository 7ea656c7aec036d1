"""Attention without heads, of elementary operations, as two courses' participants measured it.

attention.py STORED:BATCH:SEQUENCE:WIDTH ...

Allocated just before a backward pass, after one that has been. `both` has a softmax of its own, which keeps the
exponentials, their maxima's places and their sums beside the weights, and gradients from the pass before; `weights` has
torch's softmax, which keeps the weights alone, keeps what attention returned, and has no gradients yet.
"""

from __future__ import annotations

import math
import sys
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


def before_backward(kind: str, batch: int, sequence: int, width: int) -> int:
    """Bytes."""
    given = [torch.randn(batch, sequence, width, device="cuda", requires_grad=True) for _ in range(3)]
    if kind == "both":
        for _ in range(2):
            loss = attention(*given, own_softmax).sum()
            found = torch.cuda.memory_allocated()
            loss.backward()
        return found
    for _ in range(2):
        for one in given:
            one.grad = None
        result = attention(*given, lambda scores: torch.softmax(scores, dim=-1))
        found = torch.cuda.memory_allocated()
        result.sum().backward()
    return found


def main() -> None:
    """Every size in one process."""
    figures = {}
    for name in sys.argv[1:]:
        kind, *sizes = name.split(":")
        torch.cuda.empty_cache()
        figures[name] = before_backward(kind, *map(int, sizes))
    say(**figures)


if __name__ == "__main__":
    main()
