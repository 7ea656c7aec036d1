"""The loss of a language model's last layer, with a soft cap, in the shapes of Gemma 2; its memory by phases."""

from __future__ import annotations

import gc

import torch
from figures import say
from torch.nn import functional

TOKENS, WIDTH, VOCABULARY, CAP = 8192, 2304, 256_000, 30.0


def loss_of(given: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Capped scores, in float32 for the loss."""
    scores = given @ weight.T
    scores = torch.tanh(scores / CAP) * CAP
    return functional.cross_entropy(scores.float(), targets)


def phase(name: str, tensors: list[torch.Tensor]) -> int:
    """By how many bytes the peak is above what was there when the phase began."""
    for tensor in tensors[:2]:
        tensor.grad = None
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loss = loss_of(*tensors)
    if name == "backward":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    if name != "forward":
        loss.backward()
    return torch.cuda.max_memory_allocated() - before


def main() -> None:
    """Each phase after it has run once."""
    tensors = [
        torch.zeros(TOKENS, WIDTH, dtype=torch.bfloat16, device="cuda", requires_grad=True),
        torch.zeros(VOCABULARY, WIDTH, dtype=torch.bfloat16, device="cuda", requires_grad=True),
        torch.zeros(TOKENS, dtype=torch.long, device="cuda"),
    ]
    phases = ("forward", "backward", "forward+backward")
    for name in phases:
        phase(name, tensors)
    say(**{name: phase(name, tensors) for name in phases})


if __name__ == "__main__":
    main()
