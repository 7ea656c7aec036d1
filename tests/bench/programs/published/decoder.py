"""A course's decoder (RMS norms, rotary positions, gated feed-forward layers) in training or inference.

Everything is of elementary operations: norm, softmax, cross-entropy, and an AdamW that goes from parameter to parameter
and makes new moments in each step. Figures are told of points in between.
"""

from __future__ import annotations

import argparse
import contextlib
import math
from typing import Any

import torch
from attention import own_softmax
from figures import on_device, say, tracked
from torch import nn
from torch.nn import functional

VOCABULARY = 10_000


class Norm(nn.Module):
    """Root-mean-square normalisation in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Of (..., width) to the same shape."""
        x = given.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (self.weight * x).to(given.dtype)


class Rotary(nn.Module):
    """Positions turned into angles of pairs."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.register_buffer("angles", torch.zeros(2, context, width // 2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (..., sequence, width) to the same shape."""
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        cosine, sine = self.angles[:, : x.shape[-2]].unbind(0)
        return torch.cat((cosine * first - sine * second, sine * first + cosine * second), dim=-1)


class Attention(nn.Module):
    """Causal attention; the scores' mask is made at each use."""

    def __init__(self, width: int, heads: int, rotary: Rotary) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.rotary = rotary

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, sequence, width) to the same shape."""
        length = x.shape[1]
        made = [one(x) for one in (self.query, self.key, self.value)]
        query, key, value = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in made)
        query, key = self.rotary(query), self.rotary(key)
        place = torch.arange(length, device=x.device)
        mask = (place[:, None] >= place[None, :])[None]
        scores = torch.einsum("bhqd,bhkd->bhqk", query, key) / math.sqrt(query.shape[-1])
        scores = torch.where(mask, scores, float("-inf"))
        found = torch.einsum("bhqk,bhkd->bhqd", own_softmax(scores), value)
        return self.out(found.transpose(1, 2).flatten(2).contiguous())


class Gated(nn.Module):
    """Of two projections, one through SiLU by hand."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.first, self.back, self.gate = (
            nn.Linear(width, wide, bias=False), nn.Linear(wide, width, bias=False), nn.Linear(width, wide, bias=False),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (..., width) to the same shape."""
        opened = self.first(x)
        opened = opened * torch.sigmoid(opened)
        return self.back(opened * self.gate(x))


class Block(nn.Module):
    """Attention and a feed-forward layer, each with its residual."""

    def __init__(self, width: int, wide: int, heads: int, rotary: Rotary) -> None:
        super().__init__()
        self.attention, self.feed = Attention(width, heads, rotary), Gated(width, wide)
        self.norm_attention, self.norm_feed = Norm(width), Norm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, sequence, width) to the same shape."""
        x = x + self.attention(self.norm_attention(x))
        return x + self.feed(self.norm_feed(x))


class Decoder(nn.Module):
    """Tokens to scores."""

    def __init__(self, width: int, wide: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.zeros(VOCABULARY, width))
        rotary = Rotary(context, width // heads)
        self.blocks = nn.ModuleList(Block(width, wide, heads, rotary) for _ in range(layers))
        self.norm = Norm(width)
        self.out = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of (batch, sequence, vocabulary)."""
        x = self.tokens[tokens, :]
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


class ByHandAdamW(torch.optim.Optimizer):
    """New moments in each step, parameter by parameter."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Once."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                grad, state = parameter.grad, self.state[parameter]
                parameter.data -= 0.01 * group["lr"] * parameter.data
                before_first = state.get("first", torch.zeros_like(grad))
                before_second = state.get("second", torch.zeros_like(grad))
                first = 0.9 * before_first + 0.1 * grad
                second = 0.999 * before_second + 0.001 * torch.square(grad)
                parameter.data -= group["lr"] * first / (torch.sqrt(second) + 1e-8)
                state["first"], state["second"] = first, second


def cross_entropy(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of elementary operations."""
    shifted = scores - torch.max(scores, dim=-1, keepdim=True)[0]
    logs = shifted - torch.log(torch.sum(torch.exp(shifted), dim=-1, keepdim=True))
    negative = -logs
    return torch.mean(torch.gather(negative, -1, targets.unsqueeze(-1)))


def share(parameters: list[nn.Parameter], ranks: int) -> list[nn.Parameter]:
    """What the first of `ranks` ranks keeps optimizer state for: the parameter is the one's who has least so far."""
    sizes = [0] * ranks
    mine = []
    for parameter in parameters:
        least = sizes.index(min(sizes))
        sizes[least] += parameter.numel()
        if not least:
            mine.append(parameter)
    return mine


def make(arguments: argparse.Namespace) -> Any:
    """The model, its optimizer, and what makes a step up to the optimizer's, and that."""
    sizes = arguments.width, arguments.wide, arguments.layers, arguments.heads, arguments.sequence
    model = on_device(lambda: Decoder(*sizes))
    parameters = list(model.parameters())
    kept = share(parameters, arguments.ranks) if arguments.ranks > 1 else parameters
    optimizer: Any = torch.optim.AdamW(kept) if arguments.torch_optimizer else ByHandAdamW(kept)
    given = torch.zeros(arguments.batch, arguments.sequence, dtype=torch.long, device="cuda")
    targets = torch.zeros_like(given)
    precision = torch.autocast("cuda", torch.bfloat16) if arguments.autocast else contextlib.nullcontext()

    def backward() -> None:
        optimizer.zero_grad()
        with precision:
            scores = model(given)
            if arguments.torch_loss:
                loss = functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
            else:
                loss = cross_entropy(scores, targets)
        loss.backward()

    def step() -> None:
        backward()
        optimizer.step()

    return model, optimizer, step, backward, given


def run(arguments: argparse.Namespace) -> None:
    """The run, and its figures."""
    model, optimizer, step, backward, given = make(arguments)
    figures = {"after_init": torch.cuda.memory_allocated()}
    if arguments.mode == "inference":
        with torch.no_grad():
            for _ in range(arguments.steps):
                model(given)
    elif arguments.mode == "backward":
        for _ in range(arguments.steps):
            model.zero_grad()
            backward()
    elif arguments.window:
        step()
        step()
        torch.cuda.reset_peak_memory_stats()
        step()
    else:
        backward()
        figures["peak_to_before_step"] = torch.cuda.max_memory_allocated()
        figures["before_step"] = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        figures["after_step"] = torch.cuda.memory_allocated()
        figures["peak_in_step"] = torch.cuda.max_memory_allocated()
    say(**figures)


def main() -> None:
    """Runs, or has the steps tracked."""
    parser = argparse.ArgumentParser()
    for name in ("width", "wide", "layers", "heads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name, default in (("batch", 4), ("sequence", 512), ("ranks", 1), ("steps", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--mode", choices=("training", "inference", "backward"), default="training")
    for name in ("autocast", "torch-optimizer", "torch-loss", "window", "tracker"):
        parser.add_argument(f"--{name}", action="store_true")
    arguments = parser.parse_args()
    if arguments.tracker:
        tracked(lambda: make(arguments)[:3])
    else:
        run(arguments)


if __name__ == "__main__":
    main()
