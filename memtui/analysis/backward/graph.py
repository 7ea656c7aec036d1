"""A backward pass's functions and the shapes between them, as one device sees them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional

from memtui.wire.frames import BackwardGraph

#: Blocks are multiples of this.
_UNIT_BYTES = 512
#: Functions whose forward gives another look at its first input: no memory of its own.
_VIEWS = frozenset(
    f"{name}Backward{number}"
    for name in (
        *("View", "UnsafeView", "T", "Transpose", "Permute", "ReshapeAlias", "AsStrided", "Squeeze", "Unsqueeze"),
        *("Alias", "Expand", "Select", "Slice", "Split", "SplitWithSizes", "Unbind", "Chunk", "Diagonal", "Detach"),
    )
    for number in range(3)
)


@dataclass(frozen=True)
class Shape:
    """One tensor; `bytes_held` is of a block for it, 0 on another device."""

    dimensions: tuple[int, ...]
    element_bytes: int
    bytes_held: int


@dataclass(frozen=True)
class Node:
    """One function: what its forward made, and which functions get the gradients of what it was made from.

    An edge is a node and which of its outputs, None where no gradient is wanted. What runs first has the highest
    `sequence`, but for leaves, which run as soon as they can.
    """

    op: str
    kept: tuple[str, ...]  # names of what such a function keeps
    sequence: int
    outputs: tuple[Shape, ...]
    edges: tuple[Optional[tuple[int, int]], ...]

    @property
    def is_leaf(self) -> bool:
        """A tensor that gets its gradient for good."""
        return self.op == "AccumulateGrad"

    @property
    def is_view(self) -> bool:
        """Its forward made no memory of its own."""
        return self.op in _VIEWS


class Graph:
    """The graph of one pass; raises ValueError where what was told does not fit together."""

    def __init__(self, told: BackwardGraph, device: str) -> None:
        here = {number for number, name in enumerate(told.devices) if _same(name, device)}
        if any(len(row) < 3 for row in told.nodes):
            raise ValueError("a node without a kind, a sequence or a count")
        shapes = [_shape(row, here) for row in told.shapes]
        kept = [tuple(names.split()) for names in told.saved]
        try:
            self.nodes = [_node(row, told, shapes, kept) for row in told.nodes]
        except IndexError:
            raise ValueError("a graph that does not fit together") from None
        self.roots = range(min(told.roots, len(self.nodes)))

    def input(self, node: Node, number: int) -> Optional[Shape]:
        """The shape of what a function's forward was given; None where that wants no gradient."""
        if number >= len(node.edges) or node.edges[number] is None:
            return None
        place, output = node.edges[number]  # type: ignore[misc]
        return self.nodes[place].outputs[output]

    def leaves(self) -> tuple[int, ...]:
        """Bytes of the tensors that get a gradient, in the order in which the forward came to use them."""
        used: dict[int, int] = {}
        for node in self.nodes:
            for place, _ in filter(None, node.edges):
                if self.nodes[place].is_leaf:
                    used[place] = min(used.get(place, node.sequence), node.sequence)
        return tuple(self.nodes[place].outputs[0].bytes_held for place in sorted(used, key=lambda place: used[place]))

    @property
    def leaf_bytes(self) -> int:
        """Of all tensors that get a gradient, as they are counted without rounding to blocks."""
        leaves = (node.outputs[0] for node in self.nodes if node.is_leaf)
        return sum(math.prod(shape.dimensions) * shape.element_bytes for shape in leaves if shape.bytes_held)


def _same(name: str, device: str) -> bool:
    return name == device or (name == "cpu" and device == "host")


def _shape(row: tuple[int, ...], here: set[int]) -> Shape:
    if len(row) < 2:
        raise ValueError("a shape without a device or a type")
    device, width, *dimensions = row
    size = math.prod(dimensions) * width
    return Shape(tuple(dimensions), width, rounded(size) if device in here else 0)


def rounded(size: int) -> int:
    """Bytes of the block for so many."""
    return -(-size // _UNIT_BYTES) * _UNIT_BYTES


def _node(row: tuple[int, ...], told: BackwardGraph, shapes: list[Shape], kept: list[tuple[str, ...]]) -> Node:
    op, sequence, count = row[:3]
    made, rest = row[3 : 3 + count], row[3 + count :]
    if op < 0 or count != len(made) or min(made, default=0) < 0 or len(rest) % 2:
        raise ValueError("a node of no known kind or shape")
    edges = tuple(_edge(pair, told) for pair in zip(rest[::2], rest[1::2]))
    return Node(told.ops[op], kept[op], sequence, tuple(shapes[number] for number in made), edges)


def _edge(pair: tuple[int, int], told: BackwardGraph) -> Optional[tuple[int, int]]:
    place, output = pair
    if place < 0:
        return None
    if output < 0 or output >= told.nodes[place][2]:
        raise ValueError("an edge to an output that is not there")
    return place, output
