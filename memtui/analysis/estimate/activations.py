"""What autograd keeps of a transformer's forward pass, tensor by tensor, as PyTorch's operations save it.

For a GPT block in 16 bits with dropout the list adds up to s b h (34 + 5 a s / h), as Korthikanti et al. 2022 have it;
other norms, activations, heads and widths change single entries. Elements are those of one token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .architecture import Transformer
from .precision import Precision

#: Activations written with single operations save each step's tensor, as (elements wide as computed, as autocast's
#: fp32); a kernel saves its input. What a ReLU saves is its output, which the next layer keeps anyhow.
_SAVED_BY_ACTIVATION = {"relu": (0, 0), "gelu_new": (1, 3), "gelu_fast": (1, 3)}
_KERNEL = (1, 0)


@dataclass(frozen=True)
class Saved:
    """`elements` a token of `width` bytes. With `feeds` it is kept only while one of these layers is trained."""

    group: str  # norms, attention, scores, mlp, dropout
    what: str
    elements: int
    width: int
    feeds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """How the forward pass is run; `trained` names the layers of a block whose weights get gradients."""

    precision: Precision
    sequence: int
    flash: bool
    dropout: bool
    trained: frozenset[str]


def block(model: Transformer, setting: Setting) -> list[Saved]:
    """The tensors that one block keeps for its backward pass."""
    found = [*_norms(model, setting), *_attention(model, setting), *_scores(model, setting), *_mlp(model, setting)]
    if setting.dropout and model.hidden_dropout:
        found.append(Saved("dropout", "two masks", 2 * model.hidden, 1))
    return [saved for saved in found if not saved.feeds or setting.trained.intersection(saved.feeds)]


def token_bytes(saved: Iterable[Saved]) -> int:
    """Bytes a token of all."""
    return sum(each.elements * each.width for each in saved)


def norm(model: Transformer, precision: Precision) -> list[Saved]:
    """What one norm keeps."""
    hidden = model.hidden
    if model.norm == "layer":
        return [
            Saved("norms", "input", hidden, precision.residual),
            Saved("norms", "mean and deviation", 2, 4),
        ]
    if model.norm == "written":
        # Variance, division and scaling each save what they multiply.
        return [Saved("norms", "input, centred, scaled", 3 * hidden, 4)]
    scaled = 4 if model.norm == "gemma" else precision.residual
    return [
        Saved("norms", "input in fp32", hidden, 4),
        Saved("norms", "scaled input", hidden, scaled, ("norm",)),
        Saved("norms", "root mean square", 3, 4),
    ]


def _norms(model: Transformer, setting: Setting) -> list[Saved]:
    return norm(model, setting.precision) * model.norms


def _inputs(group: str, width: int, setting: Setting, layers: tuple[str, ...]) -> list[Saved]:
    """The input that `layers` share; autocast casts it anew for each of them."""
    precision = setting.precision
    if precision.autocast:
        return [Saved(group, f"input of {layer}", width, precision.compute, (layer,)) for layer in layers]
    return [Saved(group, f"input of {', '.join(layers)}", width, precision.compute, layers)]


def _attention(model: Transformer, setting: Setting) -> list[Saved]:
    width = setting.precision.compute
    queries = model.query_width
    # Attention that is written out repeats keys and values for every head.
    keys = model.key_width if setting.flash else queries
    found = _inputs("attention", model.hidden, setting, ("qkv",) if model.fused_qkv else ("q", "k", "v"))
    found.append(Saved("attention", "queries, keys, values", queries + 2 * keys, width))
    if model.qk_norm:
        found.append(Saved("attention", "normed queries and keys", 2 * (queries + model.key_width), 4))
    # Flash attention keeps its output, which is the projection's input.
    found.append(Saved("attention", "output", queries, width, () if setting.flash else ("o",)))
    if model.output_copy and setting.flash and width == 4:
        found.append(Saved("attention", "input of o", queries, width, ("o",)))
    return found


def _scores(model: Transformer, setting: Setting) -> list[Saved]:
    heads, sequence, precision = model.heads, setting.sequence, setting.precision
    if setting.flash:
        return [Saved("scores", "log-sum-exp", heads, 4)]
    softmax = 4 if precision.autocast or model.softmax_fp32 else precision.compute
    dropped = setting.dropout and model.attention_dropout > 0
    found = [Saved("scores", "softmax", heads * sequence, softmax)]
    if dropped:
        found.append(Saved("scores", "dropout mask", heads * sequence, 1))
    if dropped or softmax != precision.compute:
        found.append(Saved("scores", "weights of the values", heads * sequence, precision.compute))
    if model.score_cap:
        found.append(Saved("scores", "capped scores", heads * sequence, precision.compute))
    return found


def _mlp(model: Transformer, setting: Setting) -> list[Saved]:
    width = setting.precision.compute
    chosen = max(model.experts_per_token, 1)
    inner = chosen * model.inner
    found = _inputs("mlp", chosen * model.hidden, setting, ("gate", "up") if model.gated else ("up",))
    narrow, wide = _SAVED_BY_ACTIVATION.get(model.activation, _KERNEL)
    found.append(Saved("mlp", "input of the activation", narrow * inner, width))
    found.append(Saved("mlp", "steps of the activation", wide * inner, 4 if setting.precision.autocast else width))
    if model.gated:
        found.append(Saved("mlp", "both factors of the gate", 2 * inner, width))
    found.append(Saved("mlp", "input of down", inner, width, () if model.activation == "relu" else ("down",)))
    if model.experts:
        found.append(Saved("mlp", "experts' outputs", chosen * model.hidden, width))
    return [saved for saved in found if saved.elements]
