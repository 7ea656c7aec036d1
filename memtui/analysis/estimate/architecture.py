"""What a network is made of, as far as its memory needs it: the shapes of its parameters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Optional


@dataclass(frozen=True)
class Weight:
    """`copies` parameters of one shape. `part` is embeddings, block or head; a matrix is what a linear layer holds."""

    name: str
    shape: tuple[int, ...]
    part: str
    copies: int = 1
    matrix: bool = False

    @property
    def elements(self) -> int:
        """Parameters in all copies."""
        return prod(self.shape) * self.copies


@dataclass(frozen=True)
class Transformer:
    """A stack of like blocks; widths in elements. What a family does not have stays at its default."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int  # width inside the MLP, of one expert
    vocabulary: int
    positions: int = 0  # rows of a learned table of positions
    segments: int = 0
    gated: bool = False
    activation: str = "gelu"
    norm: str = "layer"  # layer: the kernel; rms, gemma, written: made of single operations
    norms: int = 2  # a block
    norm_vectors: int = 2  # parameters of a norm: scale, or scale and shift
    qkv_bias: bool = True
    output_bias: bool = True
    mlp_bias: bool = True
    fused_qkv: bool = False
    output_copy: bool = False  # nn.MultiheadAttention's: in fp32 it copies what attention gives
    qk_norm: bool = False
    experts: int = 0
    experts_per_token: int = 0
    tied: bool = True
    classes: Optional[int] = None  # of a classifier; None for a language model
    pooler: bool = False
    masked_head: bool = False  # BERT's: a layer and a norm before the decoder, and a bias after it
    embedding_norm: bool = False
    final_norm: bool = True
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    embedding_dropout: float = 0.0
    softmax_fp32: bool = False  # attention written out casts its scores up
    loss_fp32: bool = False  # the logits are cast up before the loss
    score_cap: bool = False
    logit_cap: bool = False
    patch: int = 0  # side of an image patch; 0 for text
    image: int = 0

    @property
    def query_width(self) -> int:
        """Elements of a token's queries."""
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Elements of a token's keys, and of its values."""
        return self.kv_heads * self.head_dim

    @property
    def fixed_sequence(self) -> Optional[int]:
        """Tokens of an image with its class token; None for text."""
        return (self.image // self.patch) ** 2 + 1 if self.patch else None


def weights(model: Transformer) -> tuple[Weight, ...]:
    """Every parameter of `model`, once: a tied head is its embedding."""
    return tuple(weight for weight in (*_embeddings(model), *_block(model), *_head(model)) if weight.elements)


def count(parameters: Iterable[Weight]) -> int:
    """Elements of all."""
    return sum(weight.elements for weight in parameters)


def _norm(model: Transformer, name: str, part: str, copies: int = 1) -> Weight:
    return Weight(name, (model.hidden,), part, copies * model.norm_vectors)


def _embeddings(model: Transformer) -> list[Weight]:
    hidden = model.hidden
    found = [
        Weight("token embedding", (model.vocabulary, hidden), "embeddings"),
        Weight("position embedding", (model.positions, hidden), "embeddings"),
        Weight("segment embedding", (model.segments, hidden), "embeddings"),
    ]
    if model.embedding_norm:
        found.append(_norm(model, "embedding norm", "embeddings"))
    if model.patch:
        found.append(Weight("patch projection", (hidden, 3, model.patch, model.patch), "embeddings"))
        found.append(Weight("patch bias and class token", (hidden,), "embeddings", 2))
    return found


def _block(model: Transformer) -> list[Weight]:
    layers, hidden, queries, keys = model.layers, model.hidden, model.query_width, model.key_width
    found = [_norm(model, "norm", "block", layers * model.norms)]
    projections = {"qkv": queries + 2 * keys} if model.fused_qkv else {"q": queries, "k": keys, "v": keys}
    for name, width in projections.items():
        found.append(Weight(name, (width, hidden), "block", layers, matrix=True))
        found.append(Weight(f"{name} bias", (width,), "block", layers * model.qkv_bias))
    found.append(Weight("o", (hidden, queries), "block", layers, matrix=True))
    found.append(Weight("o bias", (hidden,), "block", layers * model.output_bias))
    if model.qk_norm:
        found.append(Weight("qk norm", (model.head_dim,), "block", 2 * layers))
    return [*found, *_mlp(model)]


def _mlp(model: Transformer) -> list[Weight]:
    hidden, inner = model.hidden, model.inner
    copies = model.layers * max(model.experts, 1)
    found = [
        Weight(name, (inner, hidden), "block", copies, matrix=True)
        for name in (("gate", "up") if model.gated else ("up",))
    ]
    found.append(Weight("down", (hidden, inner), "block", copies, matrix=True))
    found.append(Weight("up bias", (inner,), "block", copies * model.mlp_bias * (2 if model.gated else 1)))
    found.append(Weight("down bias", (hidden,), "block", copies * model.mlp_bias))
    if model.experts:
        found.append(Weight("router", (model.experts, hidden), "block", model.layers, matrix=True))
    return found


def _head(model: Transformer) -> list[Weight]:
    hidden = model.hidden
    found = [_norm(model, "final norm", "head")] if model.final_norm else []
    if model.pooler:
        found += [Weight("pooler", (hidden, hidden), "head", matrix=True), Weight("pooler bias", (hidden,), "head")]
    if model.classes is not None:
        found.append(Weight("classifier", (model.classes, hidden), "head", matrix=True))
        found.append(Weight("classifier bias", (model.classes,), "head"))
        return found
    if model.masked_head:
        found.append(Weight("head transform", (hidden, hidden), "head", matrix=True))
        found += [Weight("head bias", (hidden,), "head"), Weight("decoder bias", (model.vocabulary,), "head")]
        found.append(_norm(model, "head norm", "head"))
    if not model.tied:
        found.append(Weight("head", (model.vocabulary, hidden), "head", matrix=True))
    return found
