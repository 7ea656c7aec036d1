"""What optimizers keep and what a step of theirs holds for a moment, by recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Optional

from memtui.analysis.optimizers import state_factor, usual_temporary_bytes
from memtui.wire.frames import Optimizer

from .architecture import Weight
from .precision import OPTIM, Precision

#: Matrices are cut into blocks of at most so many rows and columns by the usual Shampoo implementations.
_SHAMPOO_BLOCK = 1024
#: bitsandbytes: values a block with one fp32 scale; smaller tensors stay in fp32.
_EIGHT_BIT_BLOCK, _EIGHT_BIT_LEAST = 256, 4096

#: What a loop over the parameters holds of the one it is at; 2 where a class is not here. Measured, torch 2.14.
_LOOP_TENSORS = {"SGD": 0, "Adamax": 1, "Adagrad": 1, "RMSprop": 1, "Rprop": 3}

IMPLEMENTATIONS = ("foreach", "fused", "for-loop")


@dataclass(frozen=True)
class Recipe:
    """An optimizer by the name it is asked for. `torch_class` is in torch.optim; the others bring their own rule."""

    name: str
    words: str
    torch_class: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    rule: str = "multiple"  # multiple, eight bit, factored, muon, shampoo
    tensors: int = 0  # parameter-shaped state, where torch's own class does not say
    source: str = OPTIM


@dataclass(frozen=True)
class Size:
    """Bytes with the formula that gave them; None where it takes shapes that are not known."""

    bytes: Optional[int]
    formula: str
    assumed: str = ""


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("sgd", "SGD", "SGD"),
        Recipe("momentum", "SGD with momentum", "SGD", {"momentum": 0.9}),
        Recipe("adam", "Adam", "Adam"),
        Recipe("adamw", "AdamW", "AdamW"),
        Recipe("amsgrad", "AdamW with amsgrad", "AdamW", {"amsgrad": True}),
        Recipe("nadam", "NAdam", "NAdam"),
        Recipe("radam", "RAdam", "RAdam"),
        Recipe("adamax", "Adamax", "Adamax"),
        Recipe("adagrad", "Adagrad", "Adagrad"),
        Recipe("adadelta", "Adadelta", "Adadelta"),
        Recipe("rmsprop", "RMSprop", "RMSprop"),
        Recipe("rprop", "Rprop", "Rprop"),
        Recipe("lion", "Lion", tensors=1, source="Chen et al. 2023, alg. 2"),
        Recipe("lamb", "LAMB", tensors=2, source="You et al. 2020, alg. 2"),
        Recipe("adamw8bit", "8-bit AdamW", rule="eight bit", tensors=2, source="Dettmers et al. 2022, sec. 2"),
        Recipe("lion8bit", "8-bit Lion", rule="eight bit", tensors=1, source="Dettmers et al. 2022, sec. 2"),
        Recipe("adafactor", "Adafactor", rule="factored", source="Shazeer and Stern 2018, alg. 4"),
        Recipe("muon", "Muon, AdamW beside it", rule="muon", source="Jordan et al. 2024"),
        Recipe("shampoo", "Shampoo", rule="shampoo", source="Gupta et al. 2018, alg. 1"),
    )
}
#: Other names for the same.
ALIASES = {"adam8bit": "adamw8bit", "adam-8bit": "adamw8bit", "adamw-8bit": "adamw8bit", "sgd-momentum": "momentum"}


def state_size(recipe: Recipe, precision: Precision, trained: int, shapes: Sequence[Weight]) -> Size:
    """State of `trained` parameters; `shapes` are theirs, empty where only the number is known."""
    if recipe.rule == "multiple":
        tensors = _tensors(recipe)
        width = precision.state
        return Size(tensors * width * trained, f"{tensors} x {trained:,} x {width} B")
    if recipe.rule == "eight bit":
        return _eight_bit(recipe, trained, shapes)
    if not shapes:
        return Size(None, f"{recipe.words} needs the shapes: name an architecture")
    return {"factored": _factored, "muon": _muon, "shampoo": _shampoo}[recipe.rule](precision, shapes)


def intermediate_size(
    recipe: Recipe, precision: Precision, implementation: str, trained: int, shapes: Sequence[Weight]
) -> Size:
    """What the step holds for a moment beside gradients and state."""
    width = precision.state
    if recipe.rule == "multiple" and implementation == "foreach":
        copies = usual_temporary_bytes(_frame(recipe, 1), "cuda:0") if recipe.torch_class else 1
        return Size(copies * width * trained, f"{copies} x {trained:,} x {width} B")
    if implementation == "fused" or recipe.rule == "eight bit":
        return Size(0, "updated in place")
    largest = max((weight.elements // weight.copies for weight in shapes), default=None)
    if largest is None:
        return Size(None, "some tensors of the largest parameter's size")
    tensors = _LOOP_TENSORS.get(recipe.torch_class, 2)
    if not tensors:
        return Size(0, "updated in place")
    return Size(tensors * width * largest, f"{tensors} x {largest:,} x {width} B, the largest parameter's")


def default_implementation(recipe: Recipe, precision: Precision) -> str:
    """torch takes foreach on a GPU; recipes with a master copy come with fused kernels."""
    if precision.master:
        return "fused"
    return "foreach" if recipe.rule == "multiple" else "for-loop"


def _tensors(recipe: Recipe) -> int:
    return (state_factor(_frame(recipe, 1)) or 0) if recipe.torch_class else recipe.tensors


def _frame(recipe: Recipe, trained_bytes: int) -> Optimizer:
    return Optimizer(recipe.torch_class, recipe.options, {"cuda:0": trained_bytes}, trained_bytes)


def _eight_bit(recipe: Recipe, trained: int, shapes: Sequence[Weight]) -> Size:
    tensors = recipe.tensors
    small = sum(weight.elements for weight in shapes if weight.elements // weight.copies < _EIGHT_BIT_LEAST)
    large = trained - small
    scales = ceil(large / _EIGHT_BIT_BLOCK)
    formula = f"{tensors} x ({large:,} x 1 B + {scales:,} scales x 4 B + {small:,} x 4 B)"
    return Size(tensors * (large + 4 * scales + 4 * small), formula, "tensors under 4,096 elements stay fp32")


def _factored(precision: Precision, shapes: Sequence[Weight]) -> Size:
    factors = whole = 0
    for weight in shapes:
        if len(weight.shape) < 2:
            whole += weight.elements
            continue
        lines = weight.elements // weight.copies
        factors += weight.copies * (lines // weight.shape[-1] + lines // weight.shape[-2])
    formula = f"({factors:,} of rows and columns + {whole:,} of vectors) x 4 B"
    return Size(4 * (factors + whole), formula, "Adafactor without a first moment")


def _muon(precision: Precision, shapes: Sequence[Weight]) -> Size:
    matrices = sum(weight.elements for weight in shapes if weight.part == "block" and weight.matrix)
    rest = sum(weight.elements for weight in shapes) - matrices
    width = precision.state
    formula = f"({matrices:,} of matrices + 2 x {rest:,} of the rest) x {width} B"
    return Size(width * (matrices + 2 * rest), formula, "embeddings, head, norms and biases by AdamW")


def _shampoo(precision: Precision, shapes: Sequence[Weight]) -> Size:
    squares = vectors = 0
    for weight in shapes:
        if len(weight.shape) < 2:
            vectors += weight.elements
            continue
        rows = weight.shape[0]
        columns = weight.elements // weight.copies // rows
        squares += weight.copies * _squares(rows, columns)
    formula = f"(2 x {squares:,} of preconditioners and their roots + {vectors:,} of vectors) x 4 B"
    return Size(4 * (2 * squares + vectors), formula, "blocks of at most 1,024, no grafting, no momentum")


def _squares(rows: int, columns: int) -> int:
    """Elements of both preconditioners of all blocks of one matrix."""
    across, down = ceil(columns / _SHAMPOO_BLOCK), ceil(rows / _SHAMPOO_BLOCK)
    return across * _sum_of_squares(rows) + down * _sum_of_squares(columns)


def _sum_of_squares(length: int) -> int:
    whole, rest = divmod(length, _SHAMPOO_BLOCK)
    return whole * _SHAMPOO_BLOCK**2 + rest**2
