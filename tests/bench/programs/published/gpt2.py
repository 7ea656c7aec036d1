"""GPT-2 with 124 million parameters, trained with evaluations in between and a sample at the end.

The variants are those of a published series, each of which takes one more away from the first: the mask made at each
use, the optimizer fused, bfloat16, torch's own layers, its attention, compilation.
"""

from __future__ import annotations

import argparse
import math
import os
from typing import Any

import torch
from figures import on_device, say, tracked
from torch import nn
from torch.nn import functional

CONTEXT, WIDTH, HEADS, LAYERS = 1024, 768, 12, 12
DROPOUT = 0.1


class ByHandNorm(nn.Module):
    """Layer normalisation of elementary operations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (..., width) to the same shape."""
        centre = x.mean(-1, keepdim=True)
        spread = x.var(-1, keepdim=True, unbiased=False)
        normal = (x - centre) / torch.sqrt(spread + 1e-5)
        return self.scale * normal + self.shift


class ByHandGelu(nn.Module):
    """The tanh form of GELU, of elementary operations."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of any shape to the same."""
        slope = torch.sqrt(torch.tensor(2.0 / math.pi))
        return 0.5 * x * (1 + torch.tanh(slope * (x + 0.044715 * torch.pow(x, 3))))


class ByHandAttention(nn.Module):
    """Causal attention with three projections; the mask is a buffer, or is made at each use."""

    def __init__(self, width: int, heads: int, bias: bool, dropout: float, stored_mask: bool) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width, bias=bias) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        if stored_mask:
            self.register_buffer("mask", torch.triu(torch.ones(CONTEXT, CONTEXT), diagonal=1))
        self.stored_mask = stored_mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, tokens, width) to the same shape."""
        batch, tokens, width = x.shape
        shape = batch, tokens, self.heads, width // self.heads
        key, query, value = (one(x).view(shape).transpose(1, 2) for one in (self.key, self.query, self.value))
        scores = query @ key.transpose(2, 3)
        if self.stored_mask:
            hidden = self.mask.bool()[:tokens, :tokens]
        else:
            hidden = torch.triu(torch.ones(tokens, tokens, dtype=torch.bool, device=x.device), diagonal=1)
        scores.masked_fill_(hidden, -torch.inf)
        weights = self.dropout(torch.softmax(scores / key.shape[-1] ** 0.5, dim=-1))
        return self.out((weights @ value).transpose(1, 2).reshape(batch, tokens, width))


class FusedAttention(nn.Module):
    """Causal attention by torch's own function, with one projection."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, tokens, width) to the same shape."""
        batch, tokens, width = x.shape
        split = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        found = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.out(found.transpose(1, 2).contiguous().view(batch, tokens, width))


class Block(nn.Module):
    """Attention and a feed-forward layer, each with its residual."""

    def __init__(self, width: int, heads: int, bias: bool, dropout: float, arguments: argparse.Namespace) -> None:
        super().__init__()
        norm: Any = nn.LayerNorm if arguments.native else ByHandNorm
        if arguments.sdpa:
            self.attention: nn.Module = FusedAttention(width, heads, dropout)
        else:
            self.attention = ByHandAttention(width, heads, bias, dropout, not arguments.made_mask)
        gelu = nn.GELU(approximate="tanh") if arguments.native else ByHandGelu()
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), gelu, nn.Linear(4 * width, width))
        self.norm_attention, self.norm_feed = norm(width), norm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, tokens, width) to the same shape."""
        kept = x
        x = self.norm_attention(x)
        x = self.attention(x)
        x = self.dropout(x)
        x = x + kept
        kept = x
        x = self.norm_feed(x)
        x = self.feed(x)
        x = self.dropout(x)
        return x + kept


class Gpt2(nn.Module):
    """The decoder, with an output layer of its own."""

    def __init__(
        self, arguments: argparse.Namespace, width: int = WIDTH, heads: int = HEADS, layers: int = LAYERS,
        bias: bool = False, dropout: float = DROPOUT,
    ) -> None:  # fmt: skip
        super().__init__()
        self.tokens = nn.Embedding(arguments.vocabulary, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, bias, dropout, arguments) for _ in range(layers)))
        self.norm = nn.LayerNorm(width) if arguments.native else ByHandNorm(width)
        self.out = nn.Linear(width, arguments.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of (batch, tokens, vocabulary) for tokens of (batch, tokens)."""
        embedded = self.tokens(tokens)
        places = self.places(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.dropout(embedded + places)
        return self.out(self.norm(self.blocks(x)))


def options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The variants."""
    for name in ("made-mask", "tf32", "fused", "bf16", "native", "sdpa", "compiled", "tracker", "ddp"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--aside", type=int, help="texts of the batch that losses are told of, where it is not full")
    return parser


def loss_of(model: Any, batch: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss of a batch that is on the host."""
    batch, targets = batch.to("cuda"), targets.to("cuda")
    return functional.cross_entropy(model(batch).flatten(0, 1), targets.flatten())


def evaluate(model: Any, batch: torch.Tensor, targets: torch.Tensor, aside: int) -> None:
    """Losses of a training batch and of one of `aside` texts that is kept aside."""
    model.eval()
    with torch.no_grad():
        for texts in (batch.shape[0], aside):
            loss_of(model, batch[:texts], targets[:texts]).item()
    model.train()


def sample(model: Any, length: int = 50) -> None:
    """Tokens one after the other, each of which needs all before it."""
    model.eval()
    tokens = torch.zeros(1, 4, dtype=torch.long).to("cuda")
    with torch.no_grad():
        for _ in range(length):
            scores = model(tokens[:, -CONTEXT:])[:, -1, :]
            tokens = torch.cat((tokens, torch.argmax(scores, dim=-1, keepdim=True)), dim=1)
    model.train()


def make(arguments: argparse.Namespace) -> Any:
    """The model as it is trained, its optimizer, and what makes a step."""
    if arguments.tf32:
        torch.set_float32_matmul_precision("high")
    halved = torch.bfloat16 if arguments.bf16 else torch.float32
    model = on_device(lambda: Gpt2(arguments), halved if arguments.tracker else torch.float32)
    trained: Any = torch.compile(model) if arguments.compiled else model
    if arguments.bf16 and not arguments.tracker:  # which a fake model cannot be
        model.to(torch.bfloat16)
    if arguments.ddp:
        trained = nn.parallel.DistributedDataParallel(trained, device_ids=[torch.cuda.current_device()])
    options = {"fused": True} if arguments.fused else {}
    optimizer = torch.optim.AdamW(trained.parameters(), lr=5e-4, weight_decay=0.1, **options)
    batch, targets = (torch.zeros(arguments.batch, CONTEXT, dtype=torch.long) for _ in range(2))

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(trained, batch, targets)
        loss.backward()
        optimizer.step()
        return loss

    return trained, optimizer, step, (batch, targets)


def main() -> None:
    """Trains, or has the steps tracked."""
    arguments = options(argparse.ArgumentParser()).parse_args()
    if arguments.ddp:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")
        torch.distributed.barrier(device_ids=[torch.cuda.current_device()])
    if arguments.tracker:
        tracked(lambda: make(arguments)[:3])
        return
    trained, _, step, data = make(arguments)
    trained.train()
    for place in range(arguments.steps):
        loss = step()
        if not place % 15:
            evaluate(trained, *data, arguments.aside or arguments.batch)
    del loss
    sample(trained)
    if not arguments.ddp or not torch.distributed.get_rank():
        say()
    if arguments.ddp:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
