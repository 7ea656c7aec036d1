"""Terms of the forward and backward pass: activations, logits and loss, and what one block's backward holds."""

from __future__ import annotations

from collections.abc import Sequence

from .activations import Saved, Setting, block, norm, token_bytes
from .architecture import Transformer
from .convolutional import ConvNet
from .precision import Precision
from .request import Parameters, Request
from .terms import BLOCKS, END, FORWARD, LAST, LOSS, Term

KORTHIKANTI = "Korthikanti et al. 2022, eq. 1"
CHECKPOINTS = "Chen et al. 2016"
_FLASH = "Dao et al. 2022"
_SAVED = "torch docs, Autograd mechanics"
_LOSS_SOURCE = "measured; Wijmans et al. 2024"
_GROUPS = {
    "norms": ("norms", _SAVED),
    "attention": ("attention's inputs and output", KORTHIKANTI),
    "scores": ("attention scores", KORTHIKANTI),
    "mlp": ("MLP", KORTHIKANTI),
    "dropout": ("dropout masks", KORTHIKANTI),
}
_UNTIL_BLOCKS = frozenset({LAST, FORWARD, LOSS, BLOCKS})


def pass_terms(request: Request, parameters: Parameters) -> list[Term]:
    """Everything that grows with the batch; one term without bytes where it takes figures that are not given."""
    model, batch = request.model, request.batch
    if batch is None:
        return [_unknown("needs --batch")]
    if isinstance(model, ConvNet):
        return _convolutional(model, batch, request.precision.compute)
    if model is None:
        return [_fitted(request, parameters, batch)]
    sequence = model.fixed_sequence or request.sequence
    if sequence is None:
        return [_unknown("needs --seq")]
    return _transformer(request, parameters, model, batch, sequence)


def _unknown(formula: str) -> Term:
    return Term("activations", "activations", None, formula, "–", _UNTIL_BLOCKS)


def _fitted(request: Request, parameters: Parameters, batch: int) -> Term:
    if request.sequence is None:
        return _unknown("needs --seq")
    width, tokens = request.precision.compute, batch * request.sequence
    elements = 4.6894e-4 * parameters.total + 1.8494e6
    formula = f"{tokens:,} tokens x (4.6894e-4 x {parameters.total:,} + 1.8494e6) x {width} B"
    words = "activations, a linear fit"
    source = "published fit, rough"
    return Term(words, "activations", round(tokens * elements * width), formula, source, _UNTIL_BLOCKS)


def _convolutional(model: ConvNet, batch: int, width: int) -> list[Term]:
    elements = model.convolved + model.activated + model.image_elements
    formula = f"{batch:,} images x {elements:,} x {width} B"
    indices = f"{batch:,} images x {model.indices:,} x 8 B"
    return [
        Term("convolutions and ReLUs", "activations", batch * elements * width, formula, _SAVED, _UNTIL_BLOCKS),
        Term("indices of the pooling", "activations", batch * model.indices * 8, indices, _SAVED, _UNTIL_BLOCKS),
    ]


def _transformer(request: Request, parameters: Parameters, model: Transformer, batch: int, sequence: int) -> list[Term]:
    setting = Setting(request.precision, sequence, request.flash, request.dropout, parameters.layers)
    tokens = batch * sequence
    saved = block(model, setting)
    found = _blocks(request, parameters, model, saved, tokens)
    found += _ends(request, parameters, model, tokens)
    if model.classes is None:
        found += _logits(model, request.precision, tokens, request.released_logits)
    return [*found, *_inside(request, model, setting, saved, tokens)]


def _blocks(
    request: Request, parameters: Parameters, model: Transformer, saved: Sequence[Saved], tokens: int
) -> list[Term]:
    """What all blocks keep; with checkpoints their inputs, and one block computed again."""
    blocks = parameters.learning_blocks
    if not blocks:
        return []
    if request.checkpointing == "full":
        width = request.precision.residual
        formula = f"{blocks} blocks x {tokens:,} tokens x {model.hidden:,} x {width} B"
        bytes_ = blocks * tokens * model.hidden * width
        inputs = Term("inputs of the blocks", "activations", bytes_, formula, CHECKPOINTS, _UNTIL_BLOCKS)
        return [inputs, *_grouped(saved, tokens, 1, frozenset({BLOCKS}), CHECKPOINTS)]
    kept = list(saved)
    again: list[Term] = []
    if request.checkpointing == "selective" and not request.flash:
        kept = [each for each in saved if each.group != "scores"]
        scores = [each for each in saved if each.group == "scores"]
        again = _grouped(scores, tokens, 1, frozenset({BLOCKS}), "Korthikanti et al. 2022, eq. 6")
    return [*_grouped(kept, tokens, blocks, _UNTIL_BLOCKS), *again]


def _grouped(saved: Sequence[Saved], tokens: int, blocks: int, phases: frozenset[str], source: str = "") -> list[Term]:
    found = []
    for group, (words, usual) in _GROUPS.items():
        members = [each for each in saved if each.group == group]
        if not members:
            continue
        flash = group == "scores" and members[0].what == "log-sum-exp"
        name = "flash attention's log-sum-exp" if flash else words
        prefix = f"{blocks} blocks x " if blocks > 1 else ""
        formula = f"{prefix}{tokens:,} tokens x {widths(members)}"
        bytes_ = blocks * tokens * token_bytes(members)
        name = name if blocks > 1 or not source else f"{name}, again for a block"
        found.append(Term(name, "activations", bytes_, formula, source or (_FLASH if flash else usual), phases))
    return found


def widths(saved: Sequence[Saved]) -> str:
    """The elements a token of all, by the bytes of each: "(3,072 x 2 B + 1,024 x 4 B)"."""
    elements: dict[int, int] = {}
    for each in saved:
        elements[each.width] = elements.get(each.width, 0) + each.elements
    parts = [f"{total:,} x {width} B" for width, total in elements.items()]
    return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"


def _ends(request: Request, parameters: Parameters, model: Transformer, tokens: int) -> list[Term]:
    """Before the first block and behind the last one."""
    precision, width = request.precision, request.precision.compute
    ends = norm(model, precision)
    before: list[Saved] = []
    if not request.lora_rank and parameters.learning_blocks == model.layers:
        if request.dropout and model.embedding_dropout:
            before.append(Saved("", "mask", model.hidden, 1))
        before += ends if model.embedding_norm else []
    behind = list(ends) if model.final_norm else []
    if model.classes is None and not request.lora_rank:
        behind.append(Saved("", "input of the head", model.hidden, width))
    if model.masked_head:
        behind += [Saved("", "head's layer and activation", 2 * model.hidden, width), *ends]
    return [
        Term(name, "activations", tokens * token_bytes(saved), f"{tokens:,} tokens x {widths(saved)}", _SAVED, phases)
        for name, saved, phases in (
            ("embeddings", before, _UNTIL_BLOCKS),
            ("final norm and head", behind, frozenset({FORWARD, LOSS})),
        )
        if saved
    ]


def _logits(model: Transformer, precision: Precision, tokens: int, released: bool) -> list[Term]:
    """Logits, which the program holds until it has gone backward or not, and what their cross-entropy keeps."""
    size = f"{tokens:,} tokens x {model.vocabulary:,}"
    elements = tokens * model.vocabulary
    both, width = frozenset({FORWARD, LOSS}), precision.compute
    softmax = 4 if model.loss_fp32 else width

    def term(name: str, category: str, bytes_each: int, phases: frozenset[str], copies: int = 1) -> Term:
        formula = f"{f'{copies} x ' if copies > 1 else ''}{size} x {bytes_each} B"
        return Term(name, category, copies * elements * bytes_each, formula, _LOSS_SOURCE, phases)

    held = frozenset({FORWARD}) if released else frozenset({FORWARD, LOSS, BLOCKS, END})
    found = [term("logits", "activations", width, held)]
    found.append(term("log-softmax of the logits", "activations", softmax, both))
    if model.logit_cap:
        found.append(term("logits before the cap", "activations", width, both))
    if model.loss_fp32 and width < 4:
        found.append(term("logits in fp32 for the loss", "temporaries", 4, frozenset({FORWARD})))
    if precision.autocast and not model.loss_fp32:
        # Autocast casts between the two halves of the cross-entropy.
        found.append(term("log-softmax in fp32", "activations", 4, both))
        found.append(term("gradient of the loss", "temporaries", 4, frozenset({LOSS})))
    else:
        found.append(term("gradients of the loss", "temporaries", softmax, frozenset({LOSS}), copies=2))
    return found


def _inside(request: Request, model: Transformer, setting: Setting, saved: Sequence[Saved], tokens: int) -> list[Term]:
    """What one block holds for a moment beside what is kept for its backward pass."""
    hidden, inner = model.hidden, max(model.experts_per_token, 1) * model.inner
    width, residual = setting.precision.compute, setting.precision.residual
    wide = 3 if model.gated else 2
    beside = f"2 x {hidden:,} x {residual} B"
    found = []
    if request.checkpointing == "full":
        formula = f"{tokens:,} tokens x ({wide} x {inner:,} x {width} B + {beside})"
        bytes_ = tokens * (wide * inner * width + 2 * hidden * residual)
        found.append(Term("tensors inside a block", "temporaries", bytes_, formula, "derived here", frozenset({LAST})))
    # The input of the last layer has been let go of; for the scores' gradients all of the MLP.
    softmax = max((each.width for each in saved if each.what == "softmax"), default=0)
    released = token_bytes(each for each in saved if each.group == "mlp")
    scores = 2 * model.heads * setting.sequence * softmax - released
    mlp = (wide - 1) * inner * width
    words = f"{wide - 1} x {inner:,} x {width} B"
    if scores > mlp:
        words = f"2 x {model.heads} x {setting.sequence:,} x {softmax} B - {released:,} B of the MLP"
    bytes_ = tokens * (max(mlp, scores) + 2 * hidden * residual)
    formula = f"{tokens:,} tokens x ({words} + {beside})"
    return [
        *found,
        Term("gradients inside a block", "temporaries", bytes_, formula, "derived here", frozenset({BLOCKS})),
    ]
