"""What autograd's functions keep for their backward: whose memory it is, and how much.

By the names under which they keep it. A tensor that two functions keep is one block; what is a parameter's, or no
gradient is wanted of, is there anyway.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Optional

from .graph import Graph, Node, rounded

#: Inputs by the order of their edges, where a function has several. Source: torch's derivatives.yaml.
_INPUTS = {
    "AddmmBackward0": ("self", "mat1", "mat2"),
    "AddbmmBackward0": ("self", "batch1", "batch2"),
    "BaddbmmBackward0": ("self", "batch1", "batch2"),
    "AddcmulBackward0": ("self", "tensor1", "tensor2"),
    "ConvolutionBackward0": ("input", "weight", "bias"),
    "NativeLayerNormBackward0": ("input", "weight", "bias"),
    "NativeGroupNormBackward0": ("input", "weight", "bias"),
    "FusedRmsNormBackward0": ("input", "weight"),
    "CudnnBatchNormBackward0": ("input", "weight", "bias"),
    "NativeBatchNormBackward0": ("input", "weight", "bias"),
    "MiopenBatchNormBackward0": ("input", "weight", "bias"),
    "ScaledDotProductFlashAttentionBackward0": ("query", "key", "value"),
    "ScaledDotProductEfficientAttentionBackward0": ("query", "key", "value", "attn_bias"),
    "ScaledDotProductCudnnAttentionBackward0": ("query", "key", "value", "attn_bias"),
    "WhereBackward0": ("self", "other"),
}
#: Elsewhere: the first input, and the second.
_FIRST, _SECOND = frozenset(("self", "input", "query", "mat1")), frozenset(("other", "mat2", "key", "weight"))
_RESULTS = frozenset(("result", "result0", "output", "out"))
#: A byte for each element of the output.
_MASKS = frozenset(("mask",))
_INDEX_BYTES = 8
_LSTM_GATES = 4
#: Python's own functions say only that they keep something: taken to be their inputs.
_OWN = ("tensors",)


class Kept(NamedTuple):
    """A block that is kept until the last of its functions has run; `key` tells it from others."""

    key: tuple[str, int, int]
    bytes_held: int


def is_silent(node: Node) -> bool:
    """Whether a function does not tell what it keeps: Python's own."""
    return node.kept == _OWN


def kept_by(graph: Graph) -> list[list[Kept]]:
    """For each node the blocks on the device that it keeps."""
    return [
        list({each.key: each for each in _of(graph, place, node)}.values()) for place, node in enumerate(graph.nodes)
    ]


def _of(graph: Graph, place: int, node: Node) -> list[Kept]:
    if node.kept == _OWN:
        found = [_block(graph, edge) for edge in node.edges if edge is not None]
    else:
        found = [_named(graph, place, node, name) for name in node.kept]
        if "Rnn" in node.op:
            found.append(Kept(("reserve", place, 0), _recurrent_bytes(graph, node)))
    return [each for each in found if each is not None and each.bytes_held]


def _named(graph: Graph, place: int, node: Node, name: str) -> Optional[Kept]:
    output = node.outputs[0] if node.outputs else None
    if output is None:
        return None
    elements = output.bytes_held // output.element_bytes if output.element_bytes else 0
    if "MaxPool" in node.op and name in {"result1", "indices"}:
        return Kept(("index", place, 0), rounded(_INDEX_BYTES * elements))
    if name in _MASKS or (name == "result1" and node.op == "NativeDropoutBackward0"):
        return Kept(("mask", place, 0), rounded(elements))
    if name in _RESULTS:
        return None if "Norm" in node.op and name != "result0" else _block(graph, (place, 0))
    if name.startswith("result") and "Rnn" in node.op and name[6:].isdigit() and int(name[6:]) < len(node.outputs):
        return _block(graph, (place, int(name[6:])))
    number = _input(node, name)
    edge = node.edges[number] if number is not None and number < len(node.edges) else None
    return None if edge is None else _block(graph, edge)


def _recurrent_bytes(graph: Graph, node: Node) -> int:
    """What a recurrent layer of cuDNN reserves: of each layer and token the gates, the output and the cell's state."""
    if len(node.outputs) < 2 or not node.outputs[1].dimensions or not node.outputs[1].dimensions[-1]:
        return 0
    output, state = node.outputs[:2]
    # By the elements of the weights on the state, which may be in one flat column: autocast makes such copies.
    weights = graph.input(node, 2)
    gates = 0 if weights is None else math.prod(weights.dimensions) // state.dimensions[-1] ** 2
    tokens = math.prod(output.dimensions[:-1])
    each = gates + 1 + (len(node.outputs) > 2 and gates == _LSTM_GATES)
    return rounded(tokens * math.prod((state.dimensions[0], state.dimensions[-1])) * each * output.element_bytes)


def _input(node: Node, name: str) -> Optional[int]:
    names = _INPUTS.get(node.op)
    if names is not None:
        return names.index(name) if name in names else None
    if name in _FIRST:
        return 0
    return min(1, len(node.edges) - 1) if name in _SECOND else 2 if name == "value" else None


def _block(graph: Graph, output: tuple[int, int]) -> Optional[Kept]:
    """Whose memory an output of a forward is: a view's is that of what it looks at."""
    for _ in graph.nodes:
        node = graph.nodes[output[0]]
        if node.is_leaf:
            return None
        if not node.is_view:
            return Kept(("output", *output), node.outputs[output[1]].bytes_held)
        edge = node.edges[0] if node.edges else None
        if edge is None:
            return None
        output = edge
    return None
