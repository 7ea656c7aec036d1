"""What a model is called with in a program that is tried out: how many tokens or samples its activations are of."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Optional

from ..wire.frames import Event

_CALL = "_call_impl"  # of torch.nn.Module, in whose loop over hooks the agent notices a call
_INTEGERS = frozenset({"torch.int64", "torch.int32"})


class Inputs:
    """Tells each change of the shape that root modules are called with."""

    def __init__(self, events: deque[Event]) -> None:
        self._events = events
        self._told: Any = None
        self._again = False

    def note(self, frame: Any, step: int, *, again: Optional[bool]) -> None:
        """`frame` is the call of a root module; `step` how many are completed; `again` without a backward pass since
        the last, None where that is not known: then as it was before.
        """
        if frame is not None and frame.f_code.co_name != _CALL:
            frame = frame.f_back  # in a recorded step it is asked through one more function
        if frame is None or frame.f_code.co_name != _CALL:
            return
        variables = frame.f_locals
        try:
            counted = _counted(list(_tensors(variables.get("args", ()), variables.get("kwargs", {}))))
        except (AttributeError, RuntimeError, TypeError, ValueError):  # a tensor of another kind, without such a shape
            counted = None
        self._again = self._again if again is None else again
        found = (id(variables.get("self")), None if self._again else counted)
        if found == self._told:
            return
        before, self._told = self._told, found
        figures, shape = found[1] or ({}, "")
        if before is not None and before[0] != found[0]:
            figures, shape = {}, ""  # several modules: whose activations they are is not known
        self._events.append(Event("forward_input", time.monotonic_ns(), step, "forward", None, dict(figures), shape))


def _tensors(arguments: Any, named: Any) -> Iterator[Any]:
    for each in (*arguments, *named.values()):
        for value in each.values() if isinstance(each, dict) else (each,):
            if hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "dim"):
                yield value


def _counted(tensors: list[Any]) -> Optional[tuple[tuple[tuple[str, int], ...], str]]:
    """Tokens of a batch of texts, else samples along the first dimension; with the shape. None where neither is."""
    texts = {tuple(each.shape) for each in tensors if each.dim() == 2 and str(each.dtype) in _INTEGERS}
    if not tensors or len(texts) > 1 or not tensors[0].dim():
        return None
    if texts:
        rows, length = texts.pop()
        return (("tokens", rows * length),), _words((rows, length))
    if str(tensors[0].dtype) in _INTEGERS and tensors[0].dim() == 1:
        return None  # texts one behind the other, or classes
    return (("samples", int(tensors[0].shape[0])),), _words(tuple(tensors[0].shape))


def _words(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{size:,}" for size in shape)
