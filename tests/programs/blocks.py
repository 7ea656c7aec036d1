"""Trains a small GPT or Llama for two steps on cuda:0 and prints the highest allocated bytes of each part of the last.

Its only argument is a list of cases in JSON. Each has config (shapes, named as Hugging Face does), precision, flash,
checkpointing, implementation, batch and sequence, and may have the rank of adapters, or how many blocks are frozen.
"""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Norm(nn.Module):
    """A root mean square norm of single operations, as in Llama's own code."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        wide = inputs.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(inputs.dtype)


class Adapted(nn.Module):
    """A frozen layer with an adapter of a low rank beside it."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.narrow = nn.Linear(layer.in_features, rank, bias=False)
        self.wide = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs) + self.wide(self.narrow(inputs))


class Attention(nn.Module):
    """Causal, by the kernel or written out; keys and values may be shared by several heads."""

    def __init__(self, config: dict[str, Any], flash: bool, dropout: float, bias: bool) -> None:
        super().__init__()
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        hidden = config["hidden_size"]
        self.width, self.flash, self.dropout = hidden // self.heads, flash, dropout
        self.fused = bias
        keys = self.groups * self.width
        if self.fused:
            self.qkv = nn.Linear(hidden, hidden + 2 * keys)
        else:
            self.q, self.k, self.v = (nn.Linear(hidden, size, bias=False) for size in (hidden, keys, keys))
        self.o = nn.Linear(hidden, hidden, bias=bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        batch, sequence, hidden = inputs.shape
        keys = self.groups * self.width
        if self.fused:
            parts = self.qkv(inputs).split((hidden, keys, keys), -1)
        else:
            parts = (self.q(inputs), self.k(inputs), self.v(inputs))
        q, k, v = (part.view(batch, sequence, -1, self.width).transpose(1, 2) for part in parts)
        mixed = self._flash(q, k, v) if self.flash else self._written(q, k, v)
        return self.o(mixed.transpose(1, 2).reshape(batch, sequence, hidden))

    def _flash(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        shared = self.groups != self.heads
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.dropout, enable_gqa=shared
        )

    def _written(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k, v = (part.repeat_interleave(self.heads // self.groups, 1) for part in (k, v))
        scores = (q @ k.transpose(-1, -2)) * self.width**-0.5
        weights = functional.softmax(scores, -1)
        return functional.dropout(weights, self.dropout) @ v


class Block(nn.Module):
    """Attention and an MLP, each behind a norm and beside the residual."""

    def __init__(self, config: dict[str, Any], flash: bool, dropout: float) -> None:
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gated = config["model_type"] == "llama"
        self.first, self.second = (Norm(hidden) if self.gated else nn.LayerNorm(hidden) for _ in range(2))
        self.attention = Attention(config, flash, dropout, bias=not self.gated)
        self.dropout = dropout
        self.up = nn.Linear(hidden, inner, bias=not self.gated)
        self.gate = nn.Linear(hidden, inner, bias=False) if self.gated else None
        self.down = nn.Linear(inner, hidden, bias=not self.gated)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        inputs = inputs + functional.dropout(self.attention(self.first(inputs)), self.dropout)
        return inputs + functional.dropout(self._mlp(self.second(inputs)), self.dropout)

    def _mlp(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.gate is None:
            return self.down(functional.gelu(self.up(inputs)))
        return self.down(functional.silu(self.gate(inputs)) * self.up(inputs))


class Model(nn.Module):
    """Embeddings, blocks and a head, which a GPT ties to its embeddings."""

    def __init__(self, config: dict[str, Any], flash: bool, checkpoints: bool) -> None:
        super().__init__()
        gpt = config["model_type"] == "gpt2"
        hidden, dropout = config["hidden_size"], 0.1 if gpt else 0.0
        self.tokens = nn.Embedding(config["vocab_size"], hidden)
        self.positions = nn.Embedding(config["n_positions"], hidden) if gpt else None
        self.blocks = nn.ModuleList(Block(config, flash, dropout) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.LayerNorm(hidden) if gpt else Norm(hidden)
        self.head = nn.Linear(hidden, config["vocab_size"], bias=False)
        if gpt:
            self.head.weight = self.tokens.weight
        self.dropout, self.checkpoints = dropout, checkpoints

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens)
        if self.positions is not None:
            hidden = hidden + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        hidden = functional.dropout(hidden, self.dropout)
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False) if self.checkpoints else block(hidden)
        return self.head(self.norm(hidden))


def freeze(model: Model, blocks: int, rank: int) -> None:
    """Nothing, or the embeddings and the first blocks, or all but adapters of q and v."""
    if rank:
        model.requires_grad_(False)
        for block in model.blocks:
            attention = block.attention
            attention.q, attention.v = Adapted(attention.q, rank), Adapted(attention.v, rank)
    elif blocks:
        model.tokens.requires_grad_(False)
        model.blocks[:blocks].requires_grad_(False)


def highest() -> int:
    """Peak since the last call."""
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return peak


def train(case: dict[str, Any]) -> dict[str, int]:
    """The peaks of the second step."""
    config = case["config"]
    model = Model(config, case["flash"], case["checkpointing"] == "full")
    freeze(model, case.get("frozen", 0), case.get("rank", 0))
    model = model.cuda()
    if case["precision"] == "bf16":
        model = model.bfloat16()
    how = {"foreach": {}, "fused": {"fused": True}, "for-loop": {"foreach": False}}[case["implementation"]]
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], **how)
    peaks = {"parameters": sum(parameter.numel() for parameter in model.parameters())}
    for _ in range(2):
        tokens = torch.randint(config["vocab_size"], (case["batch"], case["sequence"]), device="cuda")
        highest()
        with torch.autocast("cuda", torch.bfloat16, enabled=case["precision"] == "amp-bf16"):
            logits = model(tokens)
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        peaks["forward"] = highest()
        loss.backward()
        peaks["backward"] = highest()
        del logits, loss
        highest()
        optimizer.step()
        peaks["optimizer"] = highest()
        optimizer.zero_grad()
    return peaks


if __name__ == "__main__":
    found = []
    for each in json.loads(sys.argv[1]):
        found.append(train(each))
        gc.collect()
        torch.cuda.empty_cache()
    print(json.dumps(found))
