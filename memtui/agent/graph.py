"""Reads the graph that a backward pass is about to run through: the shapes of gradients, and what is kept for them.

Only what its nodes say of themselves: nothing that was saved is unpacked, for that may run the program's own functions
(checkpointing recomputes there), and no tensor is touched.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Optional

from ..wire.frames import BackwardGraph

#: How many nodes are read, and for how long of the training's time.
_NODES, _NANOSECONDS = 10_000, 200_000_000
_CHECK_EVERY = 256
_RAW = "_raw_saved_"
#: Frames between torch.autograd.backward and here.
_DEPTH = 8
_BACKWARD = os.path.join("torch", "autograd", "__init__.py")
_NO_NODE = (-1, -1)


class FirstGraph:
    """Reads the first backward pass of the first step; `done` has its graph, for the agent's thread to collect."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.wanted = wanted
        self.done: Optional[BackwardGraph] = None

    def read(self, step: int, now_ns: int, workspaces: Callable[[], frozenset[int]]) -> None:
        """A backward pass begins, on this thread; `step` steps are completed. `workspaces`: the sizes of cuBLAS's."""
        if not self.wanted:
            return
        self.wanted = False
        if step:
            return
        # A torch, or a function of the program's, that tells less of itself: there is no graph then.
        with contextlib.suppress(AttributeError, TypeError, RuntimeError):
            nodes = _roots()
            self.done = None if nodes is None else _Reader(time.perf_counter_ns()).graph(nodes, step, now_ns)
            if self.done is not None:
                self.done = replace(self.done, workspace_bytes=max(workspaces(), default=0))

    def collect(self) -> Optional[BackwardGraph]:
        """The graph, once."""
        done, self.done = self.done, None
        return done


def _roots() -> Optional[list[Any]]:
    """The functions that made the tensors that torch.autograd.backward was called with; None where it was not.

    That frame is torch's own, and has these tensors until it returns: asking for its variables keeps nothing alive.
    """
    frame: Any = sys._getframe(1)
    for _ in range(_DEPTH):
        if frame is None:
            return None
        code = frame.f_code
        if code.co_name == "backward" and code.co_filename.endswith(_BACKWARD):
            variables = frame.f_locals
            tensors = variables.get("tensors")
            if variables.get("inputs") or type(tensors) is not tuple:
                return None  # only a part of the graph is run
            return [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None] or None
        frame = frame.f_back
    return None


class _Reader:
    """One reading of one graph."""

    def __init__(self, begun_ns: int) -> None:
        self._begun_ns = begun_ns
        self._widths: dict[Any, int] = {}
        self._ops: dict[type, int] = {}
        self._saved: list[str] = []
        self._devices: dict[str, int] = {}
        self._shapes: dict[tuple[int, ...], int] = {}

    def graph(self, roots: list[Any], step: int, now_ns: int) -> Optional[BackwardGraph]:
        """The graph from its roots; None where it is too large, or has tensors of other kinds."""
        places = {root: place for place, root in enumerate(dict.fromkeys(roots))}
        order = list(places)
        rows: list[tuple[int, ...]] = []
        for node in order:  # which grows meanwhile
            if len(rows) % _CHECK_EVERY == 0 and time.perf_counter_ns() - self._begun_ns > _NANOSECONDS:
                return None
            edges: list[int] = []
            for following, index in node.next_functions:
                if following is None:
                    edges += _NO_NODE
                    continue
                place = places.get(following)
                if place is None:
                    place = places[following] = len(order)
                    if place >= _NODES:
                        return None
                    order.append(following)
                edges += (place, index)
            outputs = [self._shape(each) for each in node._input_metadata]
            if None in outputs:
                return None
            sequence = -1 if not edges else int(node._sequence_nr())
            rows.append((self._op(type(node)), sequence, len(outputs), *outputs, *edges))  # type: ignore[arg-type]
        return BackwardGraph(
            time_ns=now_ns,
            step=step,
            roots=len(set(roots)),
            ops=tuple(kind.__name__ for kind in self._ops),
            saved=tuple(self._saved),
            devices=tuple(self._devices),
            shapes=tuple(self._shapes),
            nodes=tuple(rows),
            cost_ns=time.perf_counter_ns() - self._begun_ns,
        )

    def _op(self, kind: type) -> int:
        found = self._ops.get(kind)
        if found is None:
            found = self._ops[kind] = len(self._ops)
            self._saved.append(" ".join(name[len(_RAW) :] for name in dir(kind) if name.startswith(_RAW)))
        return found

    def _shape(self, metadata: Any) -> Optional[int]:
        if metadata.is_nested_tensor or getattr(metadata, "is_tensor_subclass", False):
            return None
        device = self._devices.setdefault(str(metadata.device), len(self._devices))
        key = device, self._width(metadata.dtype), *map(int, metadata.shape)
        return self._shapes.setdefault(key, len(self._shapes))

    def _width(self, dtype: Any) -> int:
        width = self._widths.get(dtype)
        if width is None:
            width = self._widths[dtype] = int(dtype.itemsize)
        return width
