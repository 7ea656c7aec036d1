"""The graph of the first backward pass is read from what its functions say, and nothing of it is kept or unpacked."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from typing import Any, Optional

import pytest

from memtui.agent.backward import watch
from memtui.agent.graph import FirstGraph
from memtui.wire import codec
from memtui.wire.frames import BackwardGraph

torch = pytest.importorskip("torch")
if not hasattr(torch.zeros(1, requires_grad=True).sum().grad_fn, "_input_metadata"):
    pytest.skip("this torch's functions do not tell the shapes of their gradients", allow_module_level=True)


def _read(run: Any, step: int = 0) -> Optional[BackwardGraph]:
    """What was read of the first pass that `run` begins."""
    first = FirstGraph()

    def started() -> bool:
        first.read(step, 1, lambda: frozenset((8_519_680,)))
        return False

    _, remove = watch(torch, started, deque())
    try:
        run()
    finally:
        remove()
    return first.collect()


def _model() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def test_shapes_and_what_is_kept() -> None:
    """A small network's functions, their outputs and the parameters behind them, through the wire and back."""
    model = _model()

    graph = _read(lambda: model(torch.randn(5, 8)).sum().backward())

    assert graph is not None
    told = codec.decode(codec.encode(graph)[4:])
    assert codec.encode(told) == codec.encode(graph)
    ops = [graph.ops[row[0]] for row in graph.nodes]
    assert ops[0] == "SumBackward0"
    assert ops.count("AddmmBackward0") == 2
    leaves = [graph.shapes[row[3]] for row in graph.nodes if graph.ops[row[0]] == "AccumulateGrad"]
    assert sorted(leaves) == sorted((0, 4, *parameter.shape) for parameter in model.parameters())
    assert graph.devices == ("cpu",)
    assert "mat1" in graph.saved[graph.ops.index("AddmmBackward0")].split()
    assert graph.workspace_bytes == 8_519_680


def test_nothing_is_unpacked_or_kept() -> None:
    """GIVEN hooks on what is saved, THEN only torch's backward calls them, and the graph goes when it always did."""
    packed: list[Any] = []
    unpacked: list[Any] = []
    order: list[str] = []

    def unpack(value: Any) -> Any:
        order.append("unpack")
        unpacked.append(1)
        return value

    model = _model()
    with torch.autograd.graph.saved_tensors_hooks(lambda value: packed.append(1) or value, unpack):
        loss = model(torch.randn(5, 8)).sum()
    first = FirstGraph()

    def started() -> bool:
        first.read(0, 1, frozenset)
        order.append("read")
        return False

    _, remove = watch(torch, started, deque())
    try:
        loss.backward()
    finally:
        remove()

    assert first.collect() is not None
    assert order[0] == "read"
    assert len(unpacked) <= len(packed)
    gone = weakref.ref(loss)
    del loss
    gc.collect()
    assert gone() is None


def test_only_of_the_first_step() -> None:
    """A pass of a later step is not read, nor the second one of the first."""
    model = _model()
    assert _read(lambda: model(torch.randn(5, 8)).sum().backward(), step=3) is None


def test_a_part_of_the_graph_is_not_read() -> None:
    """With `inputs` only some gradients are made; torch.autograd.grad makes none for good."""
    model = _model()
    assert _read(lambda: model(torch.randn(5, 8)).sum().backward(inputs=[next(model.parameters())])) is None
    assert _read(lambda: torch.autograd.grad(model(torch.randn(5, 8)).sum(), list(model.parameters()))) is None


def test_functions_of_the_program() -> None:
    """They say that they keep something."""

    class Double(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, value: Any) -> Any:
            ctx.save_for_backward(value)
            return value * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 2

    model = _model()

    graph = _read(lambda: Double.apply(model(torch.randn(5, 8))).sum().backward())

    assert graph is not None
    assert graph.saved[graph.ops.index("DoubleBackward")] == "tensors"


def test_a_graph_that_is_too_large_is_left() -> None:
    """After so many nodes."""
    value = torch.zeros(1, requires_grad=True)

    def many() -> None:
        total = value
        for _ in range(11_000):
            total = total * 1.0
        total.sum().backward()

    assert _read(many) is None
