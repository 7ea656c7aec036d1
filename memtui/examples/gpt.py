"""Trains a small GPT, character by character, on text that it makes itself, on whatever the machine has."""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

#: (layers, width, heads, context, batch): a GPU gets more to do than a laptop's processor.
SIZES = {"cuda": (12, 768, 12, 512, 16), "xpu": (12, 768, 12, 512, 16), "mps": (8, 512, 8, 256, 16)}
SMALL = (4, 192, 6, 128, 16)


def make_text(sentences: int, seed: int = 7) -> str:
    """Plain sentences about a training run, always the same for a seed."""
    source = random.Random(seed)
    who = ("the model", "a gradient", "the optimizer", "an activation", "every parameter", "the cache", "one buffer")
    does = ("remembers", "forgets", "waits for", "grows beside", "makes room for", "is measured against", "outlives")
    when = ("in the forward pass", "before the step", "at the peak", "between two batches", "after the warm-up")
    lines = []
    for _ in range(sentences):
        first, second = source.sample(who, 2)
        lines.append(f"{first} {source.choice(does)} {second} {source.choice(when)}.")
    return "\n".join(lines)


class Block(nn.Module):
    """One transformer block: causal self-attention and a feed-forward layer, each with its residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, tokens, width) to the same shape."""
        batch, tokens, width = x.shape
        split = self.qkv(self.norm_attention(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.feed(self.norm_feed(x))


class GPT(nn.Module):
    """A decoder over characters; its output layer shares the embedding's weight."""

    def __init__(self, vocabulary: int, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Of (batch, tokens) indices to (batch, tokens, vocabulary) scores."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def best_device() -> str:
    """The accelerator that torch can use, else the processor."""
    if torch.cuda.is_available():
        return "cuda"
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        return "xpu"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def train(arguments: argparse.Namespace) -> None:
    """Trains for the steps or seconds asked for; prints a line every few steps."""
    device = arguments.device or best_device()
    layers, width, heads, context, batch = SIZES.get(device.partition(":")[0], SMALL)
    batch = arguments.batch or batch
    torch.manual_seed(0)
    text = make_text(4000)
    letters = sorted(set(text))
    index = {letter: place for place, letter in enumerate(letters)}
    data = torch.tensor([index[letter] for letter in text])
    model = GPT(len(letters), layers, width, heads, context).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"GPT with {parameters:,} parameters on {device}, batch {batch} x {context} characters", flush=True)
    begun = last = time.monotonic()
    for step in range(1, arguments.steps + 1):
        starts = torch.randint(len(data) - context - 1, (batch,))
        picked = torch.stack([data[start : start + context + 1] for start in starts.tolist()]).to(device)
        scores = model(picked[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), picked[:, 1:].flatten())
        # Virtual devices compute nothing and would race through the steps: pace them as a device that does.
        time.sleep(0.35 * arguments.pace)
        loss.backward()
        time.sleep(0.35 * arguments.pace)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        now = time.monotonic()
        if step % arguments.every == 0 or step == 1:
            print(f"step {step:5}   loss {loss.item():.4f}   {1e3 * (now - last):6.0f} ms", flush=True)
        time.sleep(0.3 * arguments.pace)
        last = time.monotonic()
        if arguments.seconds and last - begun > arguments.seconds:
            break


def main() -> Any:
    """Reads the arguments and trains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long; 0: never")
    parser.add_argument("--batch", type=int, default=0, help="0: by device")
    parser.add_argument("--device", default="", help="cuda, xpu, mps, cpu; default: the best there is")
    parser.add_argument("--every", type=int, default=10, help="steps between two lines")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds a step takes longer")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
