"""A course's decoder (RMS norms, rotary positions, gated feed-forward layers) in training or inference.

Everything is of elementary operations: norm, softmax, cross-entropy, and an AdamW that goes from parameter to
parameter. Scores and loss live until the next ones are there, as in a script's own variables. Figures are told of
points in between; with `--ranks`, optimizer state is only that of the first rank's share (communication takes nothing
of the allocator's).
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

VOCABULARY = 10_000


class Linear(nn.Module):
    """A product written as an Einstein sum."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, sequence, width) to (batch, sequence, out)."""
        return torch.einsum("bsi,oi->bso", x, self.weight)


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
        self.query, self.key, self.value, self.out = (Linear(width, width) for _ in range(4))
        self.rotary = rotary

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, sequence, width) to the same shape."""
        length = x.shape[1]
        query, key, value = self.query(x), self.key(x), self.value(x)
        query, key, value = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (query, key, value))
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
        self.first, self.back, self.gate = Linear(width, wide), Linear(wide, width), Linear(width, wide)

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
        attended = self.attention(self.norm_attention(x))
        between = x + attended
        fed = self.feed(self.norm_feed(between))
        return between + fed


class Decoder(nn.Module):
    """Tokens to scores."""

    def __init__(self, width: int, wide: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.zeros(VOCABULARY, width))
        rotary = Rotary(context, width // heads)
        self.blocks = nn.ModuleList(Block(width, wide, heads, rotary) for _ in range(layers))
        self.norm = Norm(width)
        self.out = Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of (batch, sequence, vocabulary)."""
        embedded = self.tokens[tokens, :]
        x = embedded
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


class ByHandAdamW(torch.optim.Optimizer):
    """Parameter by parameter; moments are new tensors in each step, or change in place."""

    def __init__(self, parameters: Any, in_place: bool) -> None:
        super().__init__(parameters, {"lr": 1e-3})
        self.in_place = in_place

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Once."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                grad, state = parameter.grad, self.state[parameter]
                parameter.data -= 0.01 * group["lr"] * parameter.data
                if self.in_place:
                    first, second = (state.setdefault(name, torch.zeros_like(grad)) for name in ("first", "second"))
                    first.mul_(0.9).add_(grad, alpha=0.1)
                    second.mul_(0.999).addcmul_(grad, grad, value=0.001)
                else:
                    before_first = state.get("first", torch.zeros_like(grad))
                    before_second = state.get("second", torch.zeros_like(grad))
                    first = 0.9 * before_first + 0.1 * grad
                    second = 0.999 * before_second + 0.001 * torch.square(grad)
                parameter.data -= group["lr"] * first / (torch.sqrt(second) + 1e-8)
                state["first"], state["second"] = first, second


def log_softmax(scores: torch.Tensor) -> torch.Tensor:
    """Over the last dimension."""
    shifted = scores - torch.max(scores, dim=-1, keepdim=True)[0]
    return shifted - torch.log(torch.sum(torch.exp(shifted), dim=-1, keepdim=True))


def cross_entropy(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of elementary operations."""
    negative = -log_softmax(scores)
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
    if arguments.optimizer == "torch":
        optimizer: Any = torch.optim.AdamW(kept, foreach=False)
    else:
        optimizer = ByHandAdamW(kept, arguments.optimizer == "in-place")
    given = torch.zeros(arguments.batch, arguments.sequence, dtype=torch.long, device="cuda")
    targets = torch.zeros_like(given)
    precision = torch.autocast("cuda", torch.bfloat16) if arguments.autocast else contextlib.nullcontext()

    kept_alive = {}

    def backward() -> None:
        if arguments.mode == "training":
            optimizer.zero_grad()
        with precision:
            kept_alive["scores"] = model(given)
            kept_alive["loss"] = cross_entropy(kept_alive["scores"], targets)
        kept_alive["loss"].backward()

    def step() -> None:
        backward()
        optimizer.step()

    return model, optimizer, step, backward, given


def followed(arguments: argparse.Namespace) -> Any:
    """The model, its optimizer, and what the mode does again and again."""
    model, optimizer, step, backward, given = make(arguments)

    def infer() -> None:
        with torch.no_grad():
            model(given)

    if arguments.mode == "training":
        return model, optimizer, step
    return model, None, backward if arguments.mode == "backward" else infer


def run(arguments: argparse.Namespace) -> None:
    """The run, and its figures."""
    model, optimizer, step, backward, given = make(arguments)
    figures = {"after_init": torch.cuda.memory_allocated()}
    if arguments.mode == "inference":
        with torch.no_grad():
            for _ in range(arguments.steps):
                model(given)
    elif arguments.window:
        once = backward if arguments.mode == "backward" else step
        for _ in range(arguments.steps):
            once()
        torch.cuda.reset_peak_memory_stats()
        once()
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
    parser.add_argument("--optimizer", choices=("new", "in-place", "torch"), default="new")
    for name in ("autocast", "window", "tracker"):
        parser.add_argument(f"--{name}", action="store_true")
    arguments = parser.parse_args()
    if arguments.tracker:
        tracked(lambda: followed(arguments))
    else:
        run(arguments)


if __name__ == "__main__":
    main()
