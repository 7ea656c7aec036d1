"""Sees backward passes begin and end, without a frame of its own on the program's stack.

`torch.autograd` calls its `_engine_run_backward` by that name (before 2.4, its engine's `run_backward`). The object
that stands there hands out, for each call, a callable that is torch's own function, and that the interpreter drops
when the call has returned or raised. Handing out tells the beginning. The end is told by a weak reference whose
callback is made of C functions only: it notes the time. Python code there would be a place where an exception of a
signal handler, a Ctrl-C, gets lost.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from .naps import Nap

#: Backward passes within backward passes whose end is told; at each step one such place is used.
_DEEPEST = 64
_reference = weakref.ref


class _Pass(functools.partial):  # type: ignore[type-arg]
    """A partial that can be referred to weakly in every Python."""


class Passes:
    """Hands out what runs a backward pass, and notes when it is dropped again.

    `started` is called when a pass begins, and says whether its end is wanted; `ends` receives the monotonic
    nanoseconds of each end.
    """

    def __init__(self, original: Any, started: Callable[[], bool], ends: deque[Any]) -> None:
        self.original, self.started = original, started
        self.nap = Nap()  # while it is asleep, nobody wants to know of a pass
        # A reference that is itself gone calls nothing: each is kept until so many newer passes have begun.
        self._references: deque[Any] = deque(maxlen=_DEEPEST)
        clock = map(time.clock_gettime_ns, itertools.repeat(time.CLOCK_MONOTONIC))
        # next(iterator, reference): the reference that the callback is given is next's unused default.
        self._note = functools.partial(next, map(ends.append, clock))

    def hand_out(self) -> Any:
        """What runs one pass."""
        if self.nap.asleep:
            return self.original
        current = _Pass(self.original)
        # Held before the beginning is told: should an exception arrive in between, the end is told all the same.
        reference = _reference(current, self._note)
        self._references.append(reference)
        if not self.started():
            with contextlib.suppress(ValueError):  # newer passes, of other threads, may have taken its place
                self._references.remove(reference)
        return current


class WatchedBackward(Passes):
    """Stands in for torch's `_engine_run_backward`: what is called is handed out for each call."""

    __call__ = property(Passes.hand_out)


class WatchedEngine:
    """Stands in for the engine object that torch before 2.4 calls without that function between."""

    def __init__(self, engine: Any, passes: Passes) -> None:
        self._engine, self._passes = engine, passes

    @property
    def run_backward(self) -> Any:
        """What runs the next pass."""
        return self._passes.hand_out()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def watch(torch: Any, started: Callable[[], bool], ends: deque[Any]) -> tuple[Passes, Callable[[], None]]:
    """Puts the watch in place: the passes, and what takes it out again if nobody has put something over it since."""
    holder: Any = torch.autograd
    name, original = "_engine_run_backward", getattr(torch.autograd, "_engine_run_backward", None)
    watched: Any
    passes: Passes
    if original is not None:
        passes = watched = WatchedBackward(original, started, ends)
        functools.update_wrapper(watched, original)
    else:
        holder, name = torch.autograd.Variable, "_execution_engine"
        original = holder._execution_engine
        passes = Passes(original.run_backward, started, ends)
        watched = WatchedEngine(original, passes)
    setattr(holder, name, watched)

    def remove() -> None:
        if holder.__dict__.get(name) is watched:
            setattr(holder, name, original)
        passes.started = _unwanted

    return passes, remove


def _unwanted() -> bool:
    return False
