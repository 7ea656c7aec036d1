"""The live tensors as a table: sorted, filtered, and adding up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Literal, Optional

from memtui.session.steps import step_number
from memtui.wire.frames import CATEGORIES, Tensor, Tensors

from . import units
from .bar import band
from .text import clean, place_words

Column = Literal["bytes", "name", "shape", "dtype", "category"]
#: In the order in which the table can be sorted by them.
COLUMNS: tuple[Column, ...] = ("bytes", "name", "shape", "dtype", "category")

#: What blocks without a name are.
_NAMELESS = {
    "activations": "no name, born in forward",
    "temporaries": "no name, born in backward or in the optimizer",
    "inputs": "no name, born before forward",
    "workspaces": "kept by cuBLAS for its calculations",
    "communication": "a bucket in which DDP reduces gradients",
    "private_pools": "kept in the pool of a CUDA graph or a MemPool",
}
_UNKNOWN = "nobody known owns it"
#: Instants at which tensors are listed, by the phase that begins there.
_MOMENTS = {
    "forward": "as forward began",
    "backward": "as backward began",
    "optimizer": "as the optimizer began",
}
_NAME_LENGTH = 300


@dataclass(frozen=True)
class Choice:
    """What of the table is shown, and in which order; `text` is looked for in every column, in either case."""

    column: Column = "bytes"
    reverse: bool = False
    category: Optional[str] = None
    text: str = ""

    @property
    def filtered(self) -> bool:
        """Whether something is left out."""
        return self.category is not None or bool(self.text)


@dataclass(frozen=True)
class TensorRow:
    """One line: a tensor, or blocks of one size that have no name."""

    category: str
    letter: str
    label: str
    name: str  # cleaned
    nameless: bool
    shape: str  # "3072 × 768"; of blocks without a name "12 × 8.0 MiB"
    dtype: str
    size_bytes: int
    share: str  # of what is allocated


@dataclass(frozen=True)
class TensorTable:
    """Rows in their order. Those and what is left out, and the others that were not listed, add up to `allocated`."""

    rows: tuple[TensorRow, ...]
    rows_bytes: int
    left_out_count: int
    left_out_bytes: int
    others_count: int
    others_bytes: int
    allocated_bytes: int
    largest_bytes: int
    moment: str  # "as backward began, step 1,204"
    widest_name: int  # characters, of all rows, so that columns stay where they are
    widest_shape: int
    widest_dtype: int

    @property
    def listed_count(self) -> int:
        """Rows there would be without a filter."""
        return len(self.rows) + self.left_out_count


def build_table(tensors: Tensors, choice: Choice) -> TensorTable:
    """The table of one device's live tensors."""
    pairs = [(tensor, _row(tensor, tensors.allocated_bytes)) for tensor in tensors.tensors]
    wanted = [pair for pair in pairs if _matches(pair[1], choice)]
    # Rows come the largest first: that is the order of those that are alike in the column.
    wanted.sort(key=_KEYS[choice.column])
    if choice.reverse:
        wanted.reverse()
    rows_bytes = sum(row.size_bytes for _, row in wanted)
    return TensorTable(
        rows=tuple(row for _, row in wanted),
        rows_bytes=rows_bytes,
        left_out_count=len(pairs) - len(wanted),
        left_out_bytes=sum(row.size_bytes for _, row in pairs) - rows_bytes,
        others_count=tensors.others_count,
        others_bytes=tensors.others_bytes,
        allocated_bytes=tensors.allocated_bytes,
        largest_bytes=max((row.size_bytes for _, row in pairs), default=0),
        moment=moment(tensors),
        widest_name=max((len(row.name) for _, row in pairs), default=0),
        widest_shape=max((len(row.shape) for _, row in pairs), default=0),
        widest_dtype=max((len(row.dtype) for _, row in pairs), default=0),
    )


def moment(tensors: Tensors) -> str:
    """Of which instant of the training the tensors are."""
    words = _MOMENTS.get(tensors.phase)
    if words is None:
        return place_words(tensors.phase, tensors.step)
    return f"{words}, step {step_number(tensors.step):,}"


def categories_of(tensors: Tensors) -> tuple[str, ...]:
    """The categories that have rows, in the order of the bar."""
    present = {tensor.category for tensor in tensors.tensors}
    return (*(name for name in CATEGORIES if name in present), *sorted(present.difference(CATEGORIES)))


def share(part: int, whole: int) -> str:
    """A part of the whole to a tenth of a percent; "<0.1 %" for what is there and less."""
    if not whole:
        return units.UNKNOWN
    if 0 < 2000 * part < whole:
        return "<0.1 %"
    return f"{100 * part / whole:.1f} %"


def _row(tensor: Tensor, allocated_bytes: int) -> TensorRow:
    shown = band(tensor.category, 0)
    nameless = not tensor.name
    name = clean(tensor.name, _NAME_LENGTH) if tensor.name else _NAMELESS.get(tensor.category, _UNKNOWN)
    shape = " × ".join(map(str, tensor.shape))
    if nameless and tensor.count > 1:
        shape = f"{tensor.count:,} × {units.size(tensor.size_bytes // tensor.count)}"
    elif not nameless and not tensor.shape:
        shape = "scalar"
    return TensorRow(
        category=tensor.category,
        letter=shown.letter,
        label=clean(shown.label, 40),
        name=name,
        nameless=nameless,
        shape=shape,
        dtype=clean(tensor.dtype, 40),
        size_bytes=tensor.size_bytes,
        share=share(tensor.size_bytes, allocated_bytes),
    )


def _matches(row: TensorRow, choice: Choice) -> bool:
    if choice.category is not None and row.category != choice.category:
        return False
    wanted = choice.text.casefold()
    # A shape may be typed as it is shown, or with the letter on the keyboard.
    texts = (row.name, row.dtype, row.label, row.shape, row.shape.replace(" × ", "x"))
    return not wanted or any(wanted in text.casefold() for text in texts)


_Pair = tuple[Tensor, TensorRow]
_ORDER = {name: place for place, name in enumerate(CATEGORIES)}


def _natural(text: str) -> tuple[Any, ...]:
    """For sorting names: layers.2 comes before layers.10."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"[0-9]+|[^0-9]+", text))


def _elements(tensor: Tensor) -> int:
    total = 1
    for length in tensor.shape:
        total *= length
    return total


_KEYS: dict[Column, Callable[[_Pair], Any]] = {
    "bytes": lambda pair: -pair[0].size_bytes,
    "name": lambda pair: (pair[1].nameless, _natural(pair[1].name)),
    "shape": lambda pair: (pair[1].nameless, -len(pair[0].shape), -_elements(pair[0])),
    "dtype": lambda pair: (pair[1].nameless, pair[1].dtype),
    "category": lambda pair: _ORDER.get(pair[0].category, len(_ORDER)),
}
