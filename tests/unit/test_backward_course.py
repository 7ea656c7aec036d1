"""A backward pass is run through from its graph alone: which gradients are there together, and what is freed when."""

from __future__ import annotations

import pytest

from memtui.analysis.backward.course import run
from memtui.analysis.backward.graph import Graph
from memtui.analysis.backward.workspaces import Processor, column_sum
from memtui.wire.frames import BackwardGraph

MIB = 1 << 20
_FLOATS = MIB // 4


def _graph(nodes: list[tuple[str, str, int, list[int], list[tuple[int, int] | None]]]) -> BackwardGraph:
    """Nodes by function, what it keeps, sequence, MiB of each output, edges."""
    ops = list(dict.fromkeys((op, kept) for op, kept, *_ in nodes))
    sizes = sorted({size for *_, outputs, _ in nodes for size in outputs})
    rows = [
        (
            ops.index((op, kept)),
            sequence,
            len(outputs),
            *(sizes.index(size) for size in outputs),
            *(part for edge in edges for part in (edge or (-1, -1))),
        )
        for op, kept, sequence, outputs, edges in nodes
    ]
    shapes = tuple((0, 4, size * _FLOATS) for size in sizes)
    names = tuple(op for op, _ in ops), tuple(kept for _, kept in ops)
    return BackwardGraph(0, 0, 1, names[0], names[1], ("cuda:0",), shapes, tuple(rows))


def _chain(*sizes: int, leaf: int = 0) -> BackwardGraph:
    """Functions one behind the other, the last forward first; each keeps its result."""
    count = len(sizes)
    nodes: list[tuple[str, str, int, list[int], list[tuple[int, int] | None]]] = [
        ("ReluBackward0", "result", count - place, [size], [(place + 1, 0)]) for place, size in enumerate(sizes)
    ]
    return _graph([*nodes, ("AccumulateGrad", "", -1, [leaf or sizes[-1]], [])])


def test_what_is_kept_goes_after_the_function_that_kept_it() -> None:
    """Results of 3, 2 and 1 MiB: while the first runs its gradient, the next one and all three results are there."""
    found = run(Graph(_chain(3, 2, 1), "cuda:0"), 6 * MIB, 0)

    assert found is not None
    assert found.peak_bytes == (3 + 2) * MIB  # on top of the 6 that are there when it begins
    assert found.end_bytes == (1 - 6) * MIB  # the leaf's gradient has come, all results have gone
    assert found.leaf_bytes == MIB
    assert not found.computed_again


def test_gradients_may_outgrow_what_is_freed() -> None:
    """GIVEN small results and a large parameter, THEN the peak is where its gradient is made: at the end."""
    graph = _graph(
        [
            ("ReluBackward0", "result", 2, [1], [(1, 0)]),
            ("MmBackward0", "mat2 self", 1, [1], [None, (2, 0)]),
            ("AccumulateGrad", "", -1, [50], []),
        ]
    )

    found = run(Graph(graph, "cuda:0"), MIB, 8 * MIB)

    assert found is not None
    assert found.peak_bytes == (1 + 8 + 50 - 1) * MIB  # its result has gone before, the one gradient is still there
    assert found.end_bytes == (50 + 8 - 1) * MIB


def test_the_workspace_of_the_first_product_stays() -> None:
    """A later pass has it from its beginning, where the first one's peak may come before."""
    graph = _graph(
        [
            ("ReluBackward0", "result", 2, [20], [(1, 0)]),
            ("MmBackward0", "self mat2", 1, [1], [None, (2, 0)]),
            ("AccumulateGrad", "", -1, [1], []),
        ]
    )

    found = run(Graph(graph, "cuda:0"), 20 * MIB, 8 * MIB)

    assert found is not None
    assert found.peak_bytes == 21 * MIB
    assert found.settled_peak_bytes == 29 * MIB


def test_a_gradient_that_passes_unchanged_is_one_block() -> None:
    """A sum hands its gradient to both: neither is made anew, and each leaf needs one of its own."""
    graph = _graph(
        [
            ("AddBackward0", "", 1, [4], [(1, 0), (2, 0)]),
            ("AccumulateGrad", "", -1, [4], []),
            ("AccumulateGrad", "", -1, [4], []),
        ]
    )

    found = run(Graph(graph, "cuda:0"), 0, 0)

    assert found is not None
    assert (found.peak_bytes, found.end_bytes) == (8 * MIB, 8 * MIB)


def test_two_gradients_of_one_tensor_are_added() -> None:
    """In place, for nothing else has the first."""
    graph = _graph(
        [
            ("MulBackward0", "", 3, [1], [(1, 0), (1, 0)]),
            ("ReluBackward0", "", 2, [6], [(2, 0)]),
            ("AccumulateGrad", "", -1, [6], []),
        ]
    )

    found = run(Graph(graph, "cuda:0"), 0, 0)

    assert found is not None
    assert found.peak_bytes == (1 + 6 + 6) * MIB
    assert found.end_bytes == 6 * MIB


def test_views_have_no_memory_of_their_own() -> None:
    """What a function keeps of a view is the block that it looks at, once."""
    graph = _graph(
        [
            ("MulBackward0", "self other", 3, [2], [(1, 0), (2, 0)]),
            ("ViewBackward0", "", 2, [2], [(2, 0)]),
            ("ReluBackward0", "result", 1, [2], [(3, 0)]),
            ("AccumulateGrad", "", -1, [2], []),
        ]
    )

    found = run(Graph(graph, "cuda:0"), 2 * MIB, 0)

    assert found is not None
    assert found.end_bytes == 0  # 2 MiB of gradient for the 2 that were kept


def test_what_is_computed_again_is_said_to_be() -> None:
    """GIVEN much more kept by the graph than is there, as with checkpointing, THEN the figures are not all there is."""
    found = run(Graph(_chain(10, 10, 10), "cuda:0"), 10 * MIB, 0)

    assert found is not None
    assert found.computed_again
    assert abs(found.end_bytes) <= 3  # as much as there was: in shares, rounded down


def test_a_graph_that_explains_little_says_nothing() -> None:
    """Else what it does not know would be taken to stay."""
    assert run(Graph(_chain(1, 1), "cuda:0"), 100 * MIB, 0) is None


def test_functions_of_the_program_keep_what_nobody_explains() -> None:
    """Python's own functions tell not what they keep."""
    graph = _graph([("MineBackward", "tensors", 1, [1], [(1, 0)]), ("AccumulateGrad", "", -1, [1], [])])

    found = run(Graph(graph, "cuda:0"), 40 * MIB, 0)

    assert found is not None
    assert found.end_bytes == (1 - 40) * MIB


def test_another_device_is_not_counted() -> None:
    """Its tensors have no bytes here."""
    found = run(Graph(_chain(3, 2, 1), "cuda:1"), 0, 0)

    assert found is not None
    assert (found.peak_bytes, found.leaf_bytes) == (0, 0)


@pytest.mark.parametrize(
    "row",
    [
        (0,),
        (7, 1, 1, 0),
        (-1, 1, 1, 0),
        (0, 1, 1, 9),
        (0, 1, 1, -2),
        (0, 1, 3, 0),
        (0, 1, 1, 0, 5, 0),
        (0, 1, 1, 0, 0, 3),
    ],
)
def test_a_graph_that_does_not_fit_together_is_refused(row: tuple[int, ...]) -> None:
    """Indices that lead nowhere, rows that end too early."""
    told = BackwardGraph(0, 0, 1, ("ReluBackward0",), ("result",), ("cuda:0",), ((0, 4, 16),), (row,))
    with pytest.raises(ValueError, match=r"graph|edge|node"):
        Graph(told, "cuda:0")


def test_a_circle_ends() -> None:
    """Nothing in it is ever ready, and whose memory a view is has an end."""
    row = (0, 1, 1, 0, 0, 0)
    told = BackwardGraph(0, 0, 1, ("ViewBackward0",), ("self",), ("cuda:0",), ((0, 4, 16),), (row,))

    assert run(Graph(told, "cuda:0"), 0, 0) is not None


def test_partial_sums_of_a_bias() -> None:
    """As torch's allocator was asked for them, on 84 multiprocessors of 1,536 threads."""
    card = Processor(84, 1536)
    assert column_sum(2048, 8192, card) == 64 * MIB
    assert column_sum(2048, 1000, card) == 1000 * 4 * 4096
    assert column_sum(8, 10, card) == 0
