"""Terms of what a training keeps for its parameters: weights, gradients, optimizer state, and the step's own needs."""

from __future__ import annotations

from math import ceil
from typing import Optional

from .architecture import Transformer, Weight, count
from .optimizers import Size, default_implementation, intermediate_size, state_size
from .precision import ZERO, Precision
from .request import Parameters, Request
from .terms import ALWAYS, BLOCKS, END, FORWARD, LAST, LOSS, STEP, Term

#: Elements of DeepSpeed's reduce bucket, unless configured.
REDUCE_BUCKET = 500_000_000
_AUTOGRAD = "torch docs, Autograd mechanics"
_BACKWARD = frozenset({LAST, FORWARD, LOSS, BLOCKS})


def share(bytes_: Optional[int], gpus: int) -> Optional[int]:
    """What one of `gpus` devices holds of `bytes_`: the largest part of an even cut."""
    return None if bytes_ is None else ceil(bytes_ / gpus)


def gradient_width(request: Request) -> int:
    """Bytes an element of a gradient."""
    return request.gradient_width or request.precision.gradient


def weight_terms(request: Request, parameters: Parameters) -> list[Term]:
    """Parameters as they are stored, by the part of the network they are in."""
    precision = request.precision
    gpus = request.gpus if request.zero >= 3 else 1
    parts: list[tuple[str, int]] = [("weights", parameters.total)]
    if isinstance(request.model, Transformer):
        adapters = count(parameters.adapters)
        blocks = f"weights: {request.model.layers} blocks"
        named = (("embeddings", "weights: embeddings"), ("block", blocks), ("head", "weights: head"))
        parts = [(words, _part(parameters.shapes, part)) for part, words in named]
        parts.append((f"weights: adapters of rank {request.lora_rank}", adapters))
    return [
        Term(
            words,
            "parameters",
            share(elements * precision.weight, gpus),
            f"{elements:,} x {precision.weight} B{_over(gpus)}",
            ZERO if gpus > 1 else precision.source,
        )
        for words, elements in parts
        if elements
    ]


def gradient_terms(request: Request, parameters: Parameters) -> list[Term]:
    """Gradients: those of the head before the first block's, all at the end of the backward pass and in the step."""
    width = gradient_width(request)
    gpus = request.gpus if request.zero >= 2 else 1
    early = _part(parameters.trained_shapes, "head")
    if isinstance(request.model, Transformer) and request.model.tied and request.model.classes is None:
        early += _part(parameters.trained_shapes, "embeddings")
    late = parameters.trained - early
    kept = ALWAYS if request.accumulation > 1 or request.kept_gradients else None
    source = ZERO if gpus > 1 else _AUTOGRAD
    found = []
    for words, elements, phases in (
        ("gradients: head", early, frozenset({BLOCKS, END, STEP})),
        ("gradients" if not early else "gradients: the rest", late, frozenset({END, STEP})),
    ):
        if elements:
            formula = f"{elements:,} x {width} B{_over(gpus)}"
            found.append(Term(words, "gradients", share(elements * width, gpus), formula, source, kept or phases))
    return found


def second_gradient_terms(request: Request, parameters: Parameters) -> list[Term]:
    """A gradient that has just been made beside the one it is added to."""
    width = gradient_width(request)
    model = request.model
    if isinstance(model, Transformer) and model.tied and model.classes is None and not request.lora_rank:
        table = next((weight for weight in parameters.trained_shapes if weight.name == "token embedding"), None)
        if table is not None:
            formula = f"2 x {table.elements:,} x {width} B: its own, and its sum with the head's"
            return [_temporary("tied embedding's gradients", 2 * table.elements * width, formula, {END})]
    if (request.accumulation > 1 or request.kept_gradients) and parameters.trained_shapes:
        largest = max(weight.elements // weight.copies for weight in parameters.trained_shapes)
        formula = f"{largest:,} x {width} B, before it is added to what is there"
        return [_temporary("largest gradient, twice", largest * width, formula, {END})]
    return []


def state_terms(request: Request, parameters: Parameters) -> list[Term]:
    """The optimizer's state, made in its first step and kept, and the master copy of the weights."""
    precision, recipe = request.precision, request.optimizer
    gpus = request.gpus if request.zero >= 1 else 1
    size = state_size(recipe, precision, parameters.trained, parameters.trained_shapes)
    formula = size.formula + (_over(gpus) if size.bytes is not None else "")
    source = f"{recipe.source}; {ZERO}" if gpus > 1 else recipe.source
    found = [Term(f"state of {recipe.words}", "optimizer state", share(size.bytes, gpus), formula, source)]
    if precision.master:
        elements = parameters.trained
        formula = f"{elements:,} x {precision.master} B{_over(gpus)}"
        bytes_ = share(elements * precision.master, gpus)
        found.append(Term("fp32 master copy", "optimizer state", bytes_, formula, precision.source))
    return found


def step_terms(request: Request, parameters: Parameters) -> list[Term]:
    """What the optimizer's step holds for a moment."""
    precision, recipe = request.precision, request.optimizer
    gpus = request.gpus if request.zero >= 1 else 1
    how = request.implementation or default_implementation(recipe, precision)
    size: Size = intermediate_size(recipe, precision, how, parameters.trained, parameters.trained_shapes)
    over = gpus if size.bytes else 1
    name = f"step's intermediates, {how}"
    found = [_temporary(name, share(size.bytes, over), size.formula + _over(over), {STEP}, recipe.source)]
    if precision.master and gradient_width(request) < 4:
        elements = parameters.trained
        formula = f"{elements:,} x 4 B{_over(gpus)}"
        words, source = "gradients in fp32 for the step", "DeepSpeed, stage_1_and_2.py"
        found.append(_temporary(words, share(4 * elements, gpus), formula, {STEP}, source))
    return found


def communication_terms(request: Request, parameters: Parameters) -> list[Term]:
    """Buckets of DDP or ZeRO, and what FSDP has gathered of other devices' parameters."""
    if request.gpus == 1:
        return []
    width, trained = gradient_width(request), parameters.trained
    if request.zero == 0:
        if request.bucket_view:
            return []
        formula = f"{trained:,} x {width} B, a copy of every gradient"
        return [Term("DDP buckets", "communication", trained * width, formula, "torch docs, DDP")]
    if request.zero < 3:
        elements = min(trained, REDUCE_BUCKET)
        formula = f"{elements:,} x {width} B, reduce_bucket_size"
        phases = frozenset({BLOCKS, END})
        return [Term("reduce bucket", "communication", elements * width, formula, "DeepSpeed docs, ZeRO", phases)]
    return _gathered(request, parameters)


def _gathered(request: Request, parameters: Parameters) -> list[Term]:
    source = "torch docs, fully_shard"
    phases = _BACKWARD
    if not isinstance(request.model, Transformer):
        return [Term("gathered parameters", "communication", None, "needs the shapes", source, phases)]
    blocks = _part(parameters.shapes, "block") + count(parameters.adapters)
    block = blocks // request.model.layers
    root = _part(parameters.shapes, "embeddings") + _part(parameters.shapes, "head")
    width = request.precision.compute
    trained = _part(parameters.trained_shapes, "block") // request.model.layers
    whole = f"({root:,} of the root + 2 x {block:,} of a block) x {width} B"
    gradient = f"{trained:,} x {width} B, a block before it is reduced"
    return [
        Term("gathered parameters", "communication", (root + 2 * block) * width, whole, source, phases),
        Term("gradients of a block", "communication", trained * width, gradient, source, frozenset({BLOCKS})),
    ]


def cast_terms(request: Request, parameters: Parameters) -> list[Term]:
    """Under autocast the layers keep 16-bit copies of their weights until their backward pass."""
    precision: Precision = request.precision
    # FSDP's own mixed precision gathers in 16 bits instead.
    if not precision.autocast or request.zero >= 3:
        return []
    width = precision.compute
    if not parameters.shapes:
        formula = f"{parameters.total:,} x {width} B, all taken to be of linear layers"
        return [_casts(parameters.total * width, formula, request, _BACKWARD)]
    matrices = sum(weight.elements for weight in parameters.shapes if weight.matrix) + count(parameters.adapters)
    model = request.model
    if isinstance(model, Transformer) and model.tied and model.classes is None:
        matrices += model.vocabulary * model.hidden
    # A block that is computed again casts its weights again.
    phases = frozenset({LAST, FORWARD}) if request.checkpointing == "full" else _BACKWARD
    return [_casts(matrices * width, f"{matrices:,} x {width} B of linear layers", request, phases)]


def _casts(bytes_: int, formula: str, request: Request, phases: frozenset[str]) -> Term:
    name = "autocast's copies of weights"
    return Term(name, "temporaries", bytes_, formula, request.precision.source, phases)


def _temporary(
    name: str, bytes_: Optional[int], formula: str, phases: set[str], source: str = "measured, torch 2.14"
) -> Term:
    return Term(name, "temporaries", bytes_, formula, source, frozenset(phases))


def _part(shapes: tuple[Weight, ...], part: str) -> int:
    return count(weight for weight in shapes if weight.part == part)


def _over(gpus: int) -> str:
    return f" / {gpus}" if gpus > 1 else ""
