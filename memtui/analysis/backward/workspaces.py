"""What single functions of a backward pass take beside their results, for as long as they run. Bytes."""

from __future__ import annotations

from typing import NamedTuple, Optional

from .graph import Graph, Node


class Processor(NamedTuple):
    """How much a device does at once: torch divides a sum among so many blocks of threads."""

    multiprocessors: int
    threads: int


#: Multiprocessors of a device that does not tell: those of an A100.
USUAL = Processor(108, 2048)

#: Functions that multiply matrices: with the first one the pass's own thread gets a workspace of cuBLAS.
MULTIPLY = frozenset(f"{name}Backward0" for name in ("Addmm", "Mm", "Bmm", "Baddbmm", "Addbmm", "Linear"))

_WARP, _MOST_THREADS, _VECTOR = 32, 512, 4
_LEAST_EACH, _MOST_EACH = 16, 256

#: Above so many channels cuDNN's heuristic leaves Winograd; fewer than so many are not copied.
_WINOGRAD_CHANNELS, _COPIED_CHANNELS = 256, 4
_WINOGRAD_TILE, _WINOGRAD_POINTS = 4, 36


def column_sum(rows: int, columns: int, processor: Processor) -> int:
    """The gradient of a bias, a sum over rows: torch's own reduction keeps partial sums of its blocks.

    Source: setReduceConfig in torch's Reduce.cuh. `columns` are 4 bytes each.
    """
    vector = _VECTOR if columns % _VECTOR == 0 else 1
    outputs, most = columns // vector, _MOST_THREADS // vector
    if not outputs or not rows:
        return 0
    width = min(_power(outputs), _WARP)
    height = min(_power(rows), most // width)
    width = min(_power(outputs), most // height)
    each = _up(rows, height)
    if each < height * _LEAST_EACH and each < _MOST_EACH:
        return 0
    wanted = _up(processor.multiprocessors * (processor.threads // (width * height)), _up(outputs, width))
    blocks = max(min(wanted, _up(each, _LEAST_EACH)), _up(each, _MOST_EACH))
    return 4 * columns * blocks * width * vector if blocks > 1 else 0


def bias_sum(graph: Graph, node: Node, processor: Processor) -> int:
    """Of a linear layer's bias, beside its gradients."""
    if node.op != "AddmmBackward0" or graph.input(node, 0) is None:
        return 0
    output = node.outputs[0]
    if len(output.dimensions) != 2 or not output.bytes_held:
        return 0
    rows, columns = output.dimensions
    return column_sum(rows, columns, processor)


def convolution(graph: Graph, node: Node) -> int:
    """What cuDNN takes above the gradients of a convolution: a model, for its own choice is not published.

    Of plain 3x3 filters: operands copied for the tensor cores, or Winograd's transformed ones in float32. Chosen by
    measured trainings on an A100; see the virtual GPU's README.
    """
    data, weight, output = graph.input(node, 0), graph.input(node, 1), node.outputs[0]
    if data is None or weight is None or len(weight.dimensions) != 4 or weight.dimensions[2:] != (3, 3):
        return 0
    made, taken = weight.dimensions[:2]
    count, channels, height, width = data.dimensions
    plain = channels == taken and output.dimensions[2:] in {(height, width), (height - 2, width - 2)}
    if not plain or min(made, taken) < _COPIED_CHANNELS:
        return 0
    copies = data.bytes_held + output.bytes_held + weight.bytes_held
    first = copies
    if data.element_bytes == 4 and max(made, taken) <= _WINOGRAD_CHANNELS:
        tiles = count * _up(height, _WINOGRAD_TILE) * _up(width, _WINOGRAD_TILE)
        first = 4 * _WINOGRAD_POINTS * (tiles * (made + taken) + made * taken)
    # The gradient of the weight is not there yet while that of the data is computed.
    return max(first - weight.bytes_held, copies)


def beside(graph: Graph, node: Node, processor: Optional[Processor]) -> int:
    """What one function takes beside its results."""
    if node.op == "ConvolutionBackward0":
        return convolution(graph, node)
    return bias_sum(graph, node, processor or USUAL)


def _up(whole: int, part: int) -> int:
    return -(-whole // part)


def _power(number: int) -> int:
    return 1 << (number.bit_length() - 1)
