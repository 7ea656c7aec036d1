"""Networks of rows, sequences and tables, and loops with more than one network."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.bench.programs.models import mlp

from .recipe import DEVICE, Losses, Recipe, Training, known, on_gpu, trained

WORDS = 16_000


def classes(model: Any, rows: int, width: int, count: int = 1000) -> Losses:
    """Cross-entropy over random rows."""

    def one() -> tuple[Any, Any]:
        x, y = torch.randn(rows, width, device=DEVICE), torch.randint(0, count, (rows,), device=DEVICE)
        scores = model(x)
        return functional.cross_entropy(scores, y), (x, y, scores)

    return one


def linear(recipe: Recipe, *, widths: tuple[int, ...] = (1024, 8192, 8192, 4096, 1000), rows: int = 2048) -> Training:
    """Linear layers."""
    model = mlp(*widths)
    return trained([model], classes(model, rows, widths[0], widths[-1]), recipe)


def sequences(recipe: Recipe, *, width: int = 1024, depth: int = 2, rows: int = 16, length: int = 64) -> Training:
    """An LSTM over words."""
    words, core = nn.Embedding(WORDS, width // 2).to(DEVICE), nn.LSTM(width // 2, width, depth, batch_first=True)
    core, head = core.to(DEVICE), on_gpu(lambda: nn.Linear(width, WORDS))

    def one() -> tuple[Any, Any]:
        batch = torch.randint(0, WORDS, (rows, length + 1), device=DEVICE)
        scores = head(core(words(batch[:, :-1]))[0])
        return functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten()), (batch, scores)

    return trained([words, core, head], one, recipe)


def recommender(recipe: Recipe, *, width: int = 64, rows: int = 4096, entries: int = 100_000) -> Training:
    """Large tables of embeddings under a small network."""
    sizes = (5 * entries, 2 * entries, 4 * entries // 5)
    tables = on_gpu(lambda: nn.ModuleList(nn.EmbeddingBag(size, width, mode="sum") for size in sizes))
    top = mlp(3 * width, 512, 256, 1)

    def one() -> tuple[Any, Any]:
        picked = [torch.randint(0, table.num_embeddings, (rows, 8), device=DEVICE) for table in tables]
        clicks = torch.rand(rows, 1, device=DEVICE)
        scores = top(torch.cat([table(those) for table, those in zip(tables, picked)], 1))
        return functional.binary_cross_entropy_with_logits(scores, clicks), (picked, clicks, scores)

    return trained([tables, top], one, recipe)


def tasks() -> Training:
    """One trunk and four heads, in another order in each step."""
    trunk, heads = mlp(512, 4096, 4096), [mlp(4096, width, 10) for width in (512, 1024, 2048, 4096)]
    models = [trunk, *heads]
    optimizer = torch.optim.AdamW([p for module in models for p in module.parameters()])
    drawn = random.Random(3)

    def step() -> None:
        for head in drawn.sample(heads, len(heads)):
            x, y = torch.randn(1024, 512, device=DEVICE), torch.randint(0, 10, (1024,), device=DEVICE)
            functional.cross_entropy(head(trunk(x)), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return Training(models, [optimizer], step, known(Recipe(micro=4)))


def rivals() -> Training:
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

    return Training([maker, judge], [second, first], step, known(Recipe("Adam")))


def quasi_newton() -> Training:
    """L-BFGS, which asks for loss and gradients several times a step and keeps a history of both."""
    model = mlp(784, 2048, 2048, 10)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=8)
    one = classes(model, 2048, 784, 10)

    def step() -> None:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = one()[0]
            loss.backward()
            return loss

        optimizer.step(closure)

    return Training([model], [optimizer], step, {"optimizer": None})
