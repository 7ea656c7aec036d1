"""A transformer's training steps on the virtual GPU, of any length."""

from __future__ import annotations

import math
import time
from typing import Any, Callable

import torch
from torch.nn import functional

from memtui.examples.gpt import GPT

Step = Callable[[], None]


def make(layers: int, batch: int = 4, width: int = 384) -> tuple[Any, Step]:
    """A model of so many layers, and what trains it by a step."""
    model = GPT(64, layers, width, 6, 256).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 64, (batch, 256)).cuda()

    def step() -> None:
        scores = model(tokens)
        functional.cross_entropy(scores.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(5):
        step()
    return model, step


def seconds_of(step: Step, count: int) -> float:
    """The median duration of a step."""
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        step()
        times.append(time.perf_counter() - begun)
    return sorted(times)[count // 2]


def layers_for(seconds: float) -> int:
    """How many layers make a step that lasts about so long on this machine, and not less."""
    _, step = make(1)
    seconds_of(step, 400)  # what an agent does but once is over
    small, layers = seconds_of(step, 40), 9
    for _ in range(3):  # more of them are slower each: they fill the processor's caches
        each = (seconds_of(make(layers)[1], 20) - small) / (layers - 1)
        layers = max(2, math.ceil(1 + (seconds - small) / each))
    return layers
