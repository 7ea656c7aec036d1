"""Small trainings, as they are and with one thing changed.

With a kind alone it is trained until somebody ends it; with "truth" the peak of every kind under every change is said;
with a kind and a number, whether a batch so many times as large comes through.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from memtui.examples.gpt import GPT

STEPS = 4
#: Batch, and what makes the optimizer.
KINDS: dict[str, tuple[int, Callable[..., Any]]] = {
    "GPT": (8, torch.optim.AdamW),
    "MLP": (8192, torch.optim.Adam),
    "conv net": (32, lambda parameters, **options: torch.optim.SGD(parameters, **{"momentum": 0.9, **options})),
}
CHANGES = ("none", "batch", "accumulate", "checkpointing", "autocast", "bf16", "frozen", "sgd", "fused")


class Residual(nn.Module):
    """Two convolutions and what goes past them."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(width, out, 3, stride, 1, bias=False),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(out) for _ in range(3))
        self.past = nn.Conv2d(width, out, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        """Of images to images."""
        inner = self.norms[1](self.second(functional.relu(self.norms[0](self.first(x)))))
        return functional.relu(inner + self.norms[2](self.past(x)))


class Images(nn.Module):
    """A residual network of eight blocks."""

    def __init__(self) -> None:
        super().__init__()
        widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
        self.blocks = nn.ModuleList(Residual(a, b, 1 if a == b else 2) for a, b in zip(widths, widths[1:]))
        self.stem, self.head = nn.Conv2d(3, 64, 7, 2, 3), nn.Linear(512, 1000)

    def forward(self, x: Any) -> Any:
        """Of images to scores."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class Again(nn.Module):
    """A block that is computed again in backward."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        """As the block's."""
        return checkpoint(self.inner, x, use_reentrant=False)


def build(kind: str, change: str) -> tuple[Any, Callable[[int], tuple[Any, Any]]]:
    """A model, and what makes a batch of a size: inputs and targets."""
    dtype = torch.bfloat16 if change == "bf16" else torch.float32
    if kind == "GPT":
        model: Any = GPT(256, 6, 768, 12, 512)

        def batch(size: int) -> tuple[Any, Any]:
            picked = torch.randint(256, (size, 513), device="cuda")
            return picked[:, :-1], picked[:, 1:]
    elif kind == "MLP":
        layers = (nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1024))
        model = nn.Sequential(*layers)

        def batch(size: int) -> tuple[Any, Any]:
            return torch.randn(size, 1024, device="cuda", dtype=dtype), torch.randint(1024, (size,), device="cuda")
    else:
        model = Images()

        def batch(size: int) -> tuple[Any, Any]:
            images = torch.randn(size, 3, 128, 128, device="cuda", dtype=dtype)
            return images, torch.randint(1000, (size,), device="cuda")

    if change == "checkpointing" and kind != "MLP":
        model.blocks = nn.ModuleList(Again(block) for block in model.blocks)
    parameters = list(model.parameters())
    if change == "frozen":
        total, frozen = sum(each.numel() for each in parameters), 0
        # From the end, so that what is before them keeps its activations.
        for each in reversed(parameters):
            if frozen < total / 2:
                each.requires_grad_(False)
                frozen += each.numel()
    return model.to("cuda", dtype), batch


def trainer(kind: str, change: str, times: float = 1.0) -> Callable[[], None]:
    """One step of a kind under a change, with a batch `times` as large."""
    size, make = KINDS[kind]
    size = int(size * times)
    model, batch = build(kind, change)
    trained = [each for each in model.parameters() if each.requires_grad]
    options = {"fused": True} if change == "fused" else {}
    optimizer = torch.optim.SGD(trained, lr=0.1) if change == "sgd" else make(trained, lr=1e-3, **options)
    passes = 2 if change == "accumulate" else 1
    size = 2 * size if change == "batch" else size // passes

    def step() -> None:
        for _ in range(passes):
            inputs, targets = batch(size)
            with torch.autocast("cuda", torch.bfloat16, enabled=change == "autocast"):
                loss = functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
            loss.backward()
            del inputs, targets, loss
        optimizer.step()
        optimizer.zero_grad()

    return step


def peak(kind: str, change: str) -> int:
    """The most that was allocated in some steps of a kind under a change."""
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    step = trainer(kind, change)
    for _ in range(STEPS):
        step()
    return torch.cuda.max_memory_allocated()


def main() -> None:
    """What is asked for."""
    asked = sys.argv[1]
    if asked == "truth":
        print(json.dumps({kind: {change: peak(kind, change) for change in CHANGES} for kind in KINDS}))
        return
    if len(sys.argv) > 2:
        step = trainer(asked, "none", float(sys.argv[2]))
        for _ in range(STEPS):
            step()
        return
    step = trainer(asked, "none")
    while True:
        step()
        time.sleep(0.05)


if __name__ == "__main__":
    main()
