"""Trainings whose batches are of another size in each step, and at last of one that is larger than all before.

    shapes.py KIND FACTOR FILE

A line of JSON a step in FILE: the size of the batch and of its input, and the step's peaks. The last lines are of steps
of FACTOR times the largest size. Knows nothing of memtui.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.bench.programs.models import Block, Residual, mlp

DEVICE, WORDS = "cuda", 8_000
STEPS, LARGE_STEPS = 44, 4


class Fused(nn.Module):
    """A transformer's block with torch's own attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


@dataclass(frozen=True)
class Training:
    """`step` takes a size, drawn from `sizes`, and gives the bytes of its input; `power` of it is what grows."""

    step: Callable[[int], int]
    sizes: tuple[int, ...]
    power: int = 1


def language(core: Any, width: int, sizes: tuple[int, ...], rows: Callable[[int], tuple[int, int]]) -> Training:
    """Next words of random ones; `rows` gives rows and length at a size."""
    words, head = nn.Embedding(WORDS, width).to(DEVICE), nn.Linear(width, WORDS).to(DEVICE)
    core = core.to(DEVICE)
    optimizer = torch.optim.AdamW([*words.parameters(), *core.parameters(), *head.parameters()])

    def step(size: int) -> int:
        count, length = rows(size)
        batch = torch.randint(0, WORDS, (count, length + 1)).to(DEVICE)
        found = core(words(batch[:, :-1]))
        scores = head(found[0] if isinstance(found, tuple) else found)
        loss = functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return int(batch.nbytes)

    return Training(step, sizes)


def numbers(model: Any, shape: Callable[[int], tuple[int, ...]], sizes: tuple[int, ...], power: int = 1) -> Training:
    """Classes of random numbers."""
    model = model.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(size: int) -> int:
        x = torch.randn(shape(size)).to(DEVICE)
        loss = functional.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.long, device=DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return int(x.nbytes)

    return Training(step, sizes, power)


def _pictures(side: Callable[[int], tuple[int, ...]], sizes: tuple[int, ...], power: int, stride: int = 1) -> Training:
    model = nn.Sequential(
        *(nn.Conv2d(3, 48, 3, stride, 1), *(Residual(48) for _ in range(5))),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 100)),
    )
    return numbers(model, side, sizes, power)


def _both() -> Training:
    drawn = random.Random(5)
    core = nn.Sequential(*(Block(256, 8) for _ in range(4)))
    return language(
        core, 256, (4, 8), lambda size: (size if size > 8 else drawn.randrange(4, 9), 32 * drawn.randrange(3, 9))
    )


_LENGTHS = tuple(range(192, 321))
KINDS: dict[str, Callable[[], Training]] = {
    "GPT, any length": lambda: language(
        nn.Sequential(*(Block(384, 6) for _ in range(6))), 384, _LENGTHS, lambda length: (8, length)
    ),
    "GPT, fused attention": lambda: language(
        nn.Sequential(*(Fused(384, 6) for _ in range(6))), 384, _LENGTHS, lambda length: (8, length)
    ),
    "GPT, any batch": lambda: language(
        nn.Sequential(*(Block(384, 6) for _ in range(6))), 384, tuple(range(8, 33)), lambda rows: (rows, 128)
    ),
    "CNN, any picture": lambda: _pictures(lambda side: (16, 3, side, side), tuple(range(48, 97, 4)), 2),
    "CNN, any picture, strided": lambda: _pictures(
        lambda side: (16, 3, side, side), tuple(range(61, 131)), 2, stride=2
    ),
    "CNN, any batch": lambda: _pictures(lambda rows: (rows, 3, 64, 64), tuple(range(12, 49)), 1),
    "LSTM, any length": lambda: language(
        nn.LSTM(384, 384, 2, batch_first=True), 384, tuple(range(48, 129)), lambda length: (24, length)
    ),
    "MLP, any batch": lambda: numbers(
        mlp(1024, 4096, 4096, 1000), lambda rows: (rows, 1024), tuple(range(1024, 4097, 64))
    ),
    "GPT, any batch and length": _both,
}  # fmt: skip


def main() -> None:
    kind, factor, path = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    training, drawn = KINDS[kind](), random.Random(11)
    sizes = [drawn.choice(training.sizes) for _ in range(STEPS)]
    largest = round(max(sizes) * factor ** (1 / training.power))
    with open(path, "w", encoding="utf-8") as file:
        for size in sizes + LARGE_STEPS * [largest]:
            torch.cuda.reset_peak_memory_stats()
            input_bytes = training.step(size)
            figures = {
                "size": size**training.power,
                "input_bytes": input_bytes,
                "allocated_bytes": torch.cuda.max_memory_allocated(),
                "reserved_bytes": torch.cuda.max_memory_reserved(),
            }
            file.write(json.dumps(figures) + "\n")
            time.sleep(0.03)  # a step of a GPU takes its time
    time.sleep(1)  # for the recorded steps to be read and sent


if __name__ == "__main__":
    main()
