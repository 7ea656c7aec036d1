"""Networks that other programs here have not."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.bench.programs.models import Residual


class Layer(nn.Module):
    """A transformer's block with torch's own attention; `modern` has RMS norms and a gate, as Llama's."""

    def __init__(self, width: int, heads: int, modern: bool, causal: bool = True) -> None:
        super().__init__()
        norm = nn.RMSNorm if modern else nn.LayerNorm
        inner = 8 * width // 3 if modern else 4 * width
        self.heads, self.modern, self.causal = heads, modern, causal
        self.first, self.second = norm(width), norm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=not modern), nn.Linear(width, width, bias=not modern)
        self.up, self.down = nn.Linear(width, inner, bias=not modern), nn.Linear(inner, width, bias=not modern)
        self.gate = nn.Linear(width, inner, bias=False) if modern else None

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.first(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        inner = self.second(x)
        if self.gate is None:
            return x + self.down(functional.gelu(self.up(inner)))
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))


class Decoder(nn.Module):
    """A language model of such blocks, its head tied to its embedding; `again` recomputes them, "reentrant" or not."""

    def __init__(self, layers: int, width: int, words: int, modern: bool = False, again: Optional[str] = None) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.layers = nn.ModuleList(Layer(width, 8, modern) for _ in range(layers))
        self.norm = (nn.RMSNorm if modern else nn.LayerNorm)(width)
        self.again = again

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x) if self.again is None else checkpoint(layer, x, use_reentrant=self.again == "reentrant")
        return functional.linear(self.norm(x), self.words.weight)


class Encoder(nn.Module):
    """BERT's shape of torch's own layers, with its head for masked words."""

    def __init__(self, layers: int, width: int, words: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, words))

    def forward(self, tokens: Any, padded: Any) -> Any:
        x = self.drop(self.norm(self.words(tokens) + self.places.weight[: tokens.shape[1]]))
        return self.head(self.layers(x, src_key_padding_mask=padded))


class Unet(nn.Module):
    """Down and up again, with what was there on the way down beside it on the way up."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.first = self._twice(3, width)
        self.down = nn.ModuleList(self._twice(a, b) for a, b in zip(widths, widths[1:]))
        pairs = list(zip(widths, widths[1:]))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs)
        self.joined = nn.ModuleList(self._twice(2 * a, a) for a, _ in pairs)
        self.last = nn.Conv2d(width, 3, 1)

    @staticmethod
    def _twice(before: int, after: int) -> Any:
        halves = ((before, after), (after, after))
        return nn.Sequential(
            *(
                part
                for a, b in halves
                for part in (nn.Conv2d(a, b, 3, padding=1, bias=False), nn.GroupNorm(8, b), nn.SiLU())
            )
        )

    def forward(self, x: Any) -> Any:
        kept = [self.first(x)]
        for block in self.down:
            kept.append(block(functional.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for grown, joined in zip(self.up, self.joined):
            x = joined(torch.cat([grown(x), kept.pop()], 1))
        return self.last(x)


class Patches(nn.Module):
    """A vision transformer."""

    def __init__(self, layers: int, width: int, patch: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.layers = nn.Sequential(*(Layer(width, 8, False, causal=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.layers(self.patches(x).flatten(2).transpose(1, 2))).mean(1))


def residual(width: int, depth: int) -> Any:
    """A residual network at one width."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        *(Residual(width) for _ in range(depth)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)),
    )


def autoencoder(width: int, depth: int) -> Any:
    """Strided convolutions down and up, with batch norms."""
    widths = [3, *(width << level for level in range(depth))]
    down = [
        part
        for a, b in zip(widths, widths[1:])
        for part in (nn.Conv2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2, inplace=True))
    ]
    up = [
        part
        for b, a in list(zip(widths, widths[1:]))[::-1]
        for part in (nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))
    ]
    return nn.Sequential(*down, *up[:-2])
