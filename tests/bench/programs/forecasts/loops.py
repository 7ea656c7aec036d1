"""Trainings as people write them, each saying after every step what torch's allocator says of it.

    loops.py KIND STEPS FILE

A line of JSON a step in FILE. Knows nothing of memtui.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.bench.programs.models import Language, Residual, mlp

Step = Callable[[], None]
DEVICE = "cuda"
WORDS = 16_000


def tokens(rows: int, length: int) -> Any:
    """A batch."""
    return torch.randint(0, WORDS, (rows, length + 1), device=DEVICE)


def language_loss(model: Any, batch: Any) -> Any:
    """Cross-entropy of the next word."""
    return functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def language(make: Callable[[Any], Any], *, micro: int = 1, again: bool = False, rows: int = 24) -> Step:
    """A GPT of 29 million parameters."""
    model = Language(layers=8, width=512, words=WORDS, again=again).to(DEVICE)
    optimizer = make(model.parameters())

    def step() -> None:
        for _ in range(micro):
            (language_loss(model, tokens(rows, 128)) / micro).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def rows_of_numbers() -> Step:
    """Linear layers; the gradients go before each forward."""
    model = mlp(1024, 8192, 8192, 4096, 1000)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        x, y = torch.randn(2048, 1024, device=DEVICE), torch.randint(0, 1000, (2048,), device=DEVICE)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def pictures(*, scaled: bool) -> Step:
    """A residual network, in mixed precision where it is `scaled`."""
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), *(Residual(64) for _ in range(6)), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 1000),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(DEVICE, enabled=scaled)

    def step() -> None:
        x, y = torch.randn(32, 3, 64, 64, device=DEVICE), torch.randint(0, 1000, (32,), device=DEVICE)
        with torch.autocast(DEVICE, dtype=torch.float16, enabled=scaled):
            loss = functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def sequences() -> Step:
    """An LSTM."""
    words, core = nn.Embedding(WORDS, 512).to(DEVICE), nn.LSTM(512, 1024, 2, batch_first=True).to(DEVICE)
    head = nn.Linear(1024, WORDS).to(DEVICE)
    optimizer = torch.optim.RMSprop([*words.parameters(), *core.parameters(), *head.parameters()], momentum=0.9)

    def step() -> None:
        batch = tokens(16, 64)
        scores = head(core(words(batch[:, :-1]))[0])
        loss = functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def recommender() -> Step:
    """Large tables of embeddings under a small network."""
    tables = nn.ModuleList(nn.EmbeddingBag(rows, 64, mode="sum") for rows in (500_000, 200_000, 80_000)).to(DEVICE)
    top = mlp(3 * 64, 512, 256, 1)
    optimizer = torch.optim.Adagrad([*tables.parameters(), *top.parameters()], lr=0.01)

    def step() -> None:
        picked = [torch.randint(0, table.num_embeddings, (4096, 8), device=DEVICE) for table in tables]
        clicks = torch.rand(4096, 1, device=DEVICE)
        scores = top(torch.cat([table(rows) for table, rows in zip(tables, picked)], 1))
        loss = functional.binary_cross_entropy_with_logits(scores, clicks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def tasks() -> Step:
    """One trunk and four heads, in another order in each step."""
    trunk, heads = mlp(512, 4096, 4096), [mlp(4096, width, 10) for width in (512, 1024, 2048, 4096)]
    optimizer = torch.optim.AdamW([p for module in (trunk, *heads) for p in module.parameters()])
    drawn = random.Random(3)

    def step() -> None:
        for head in drawn.sample(heads, len(heads)):
            x, y = torch.randn(1024, 512, device=DEVICE), torch.randint(0, 10, (1024,), device=DEVICE)
            functional.cross_entropy(head(trunk(x)), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def rivals() -> Step:
    """Two networks that take turns."""
    maker, judge = mlp(256, 2048, 2048, 3072), mlp(3072, 2048, 2048, 1)
    first = torch.optim.Adam(maker.parameters(), betas=(0.5, 0.999))
    second = torch.optim.Adam(judge.parameters(), betas=(0.5, 0.999))

    def step() -> None:
        real, made = torch.randn(1024, 3072, device=DEVICE), maker(torch.randn(1024, 256, device=DEVICE))
        second.zero_grad()
        (functional.softplus(judge(made.detach())) + functional.softplus(-judge(real))).mean().backward()
        second.step()
        first.zero_grad()
        functional.softplus(-judge(made)).mean().backward()
        first.step()

    return step


def averaged() -> Step:
    """A GPT with a moving average of its weights, and a loss that is kept for printing."""
    model = Language(layers=6, width=384, words=WORDS).to(DEVICE)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters())
    kept: list[Any] = []

    def step() -> None:
        loss = language_loss(model, tokens(16, 128))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mean, now in zip(average.parameters(), model.parameters()):
                mean.lerp_(now, 0.01)
        kept[:] = [loss]

    return step


def lengths() -> Step:
    """A GPT whose batches are of another length each, up to 128."""
    model = Language(layers=6, width=384, words=WORDS).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    drawn = random.Random(7)

    def step() -> None:
        loss = language_loss(model, tokens(16, drawn.randrange(32, 129)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


KINDS: dict[str, Callable[[], Step]] = {
    "MLP, Adam": rows_of_numbers,
    "GPT, AdamW foreach": lambda: language(lambda found: torch.optim.AdamW(found, foreach=True)),
    "GPT, AdamW fused": lambda: language(lambda found: torch.optim.AdamW(found, fused=True)),
    "GPT, AdamW for-loop": lambda: language(lambda found: torch.optim.AdamW(found, foreach=False)),
    "GPT, SGD": lambda: language(lambda found: torch.optim.SGD(found, lr=0.1)),
    "GPT, checkpointed": lambda: language(torch.optim.AdamW, again=True, rows=48),
    "GPT, 4 micro-batches": lambda: language(torch.optim.AdamW, micro=4, rows=12),
    "GPT, moving average": averaged,
    "ResNet, SGD momentum": lambda: pictures(scaled=False),
    "ResNet, AMP": lambda: pictures(scaled=True),
    "LSTM, RMSprop": sequences,
    "embeddings, Adagrad": recommender,
    "four tasks, any order": tasks,
    "two rivals": rivals,
    "GPT, any length": lengths,
}


def main() -> None:
    kind, steps, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    step = KINDS[kind]()
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(steps):
            step()
            figures = {
                "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
            }
            file.write(json.dumps(figures) + "\n")
            time.sleep(0.03)  # a step of a GPU takes its time
    time.sleep(1)  # for the recorded step to be read and sent


if __name__ == "__main__":
    main()
