"""Sees backward passes begin and end without a frame of its own on the program's stack.

`torch.autograd` calls its `_engine_run_backward` by that name. The object that stands there hands out, for each call,
a callable that is torch's own function and is dropped by the interpreter when the call has returned or raised: the
one moment tells the beginning, the other the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class _Pass(functools.partial):  # type: ignore[type-arg]
    ended: Callable[[], None] | None = None

    def __del__(self) -> None:
        ended = self.ended
        if ended is not None:
            ended()


class WatchedBackward:
    """Stands in for torch's `_engine_run_backward`; what it notes must not raise."""

    def __init__(self, original: Any, started: Callable[[], None], ended: Callable[[], None]) -> None:
        self.original, self.started, self.ended = original, started, ended
        functools.update_wrapper(self, original)

    @property
    def __call__(self) -> Any:
        current = _Pass(self.original)
        current.ended = self.ended
        self.started()
        return current


def watch(torch: Any, started: Callable[[], None], ended: Callable[[], None]) -> Callable[[], None]:
    """Puts the watch in place; the result takes it out again, if nobody has put something over it since."""
    original = torch.autograd._engine_run_backward
    watched = WatchedBackward(original, started, ended)
    torch.autograd._engine_run_backward = watched

    def remove() -> None:
        if torch.autograd._engine_run_backward is watched:
            torch.autograd._engine_run_backward = original
        watched.started = watched.ended = _nothing

    return remove


def _nothing() -> None:
    return None
