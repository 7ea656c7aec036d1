"""Functions that torch and Python keep for good and that keep nothing of the agent's alive."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Any

#: An attribute of `sys`: by the kind of event, the methods to be called, of any agent from any copy of this package.
_KEPT = "_memtui_kept"


def weakly(method: Any, *arguments: Any) -> Any:
    """Calls a bound method with these arguments as long as its object is there.

    A `WeakMethod` has a callback in Python: run when the object is collected, on the program's thread, it would be a
    place where the exception of a signal handler gets lost.
    """
    reference, name = weakref.ref(method.__self__), method.__name__

    def call() -> None:
        held = reference()
        if held is not None:
            getattr(held, name)(*arguments)

    return call


def in_children(method: Any) -> None:
    """Calls a bound method in children that are forked, as long as its object is there."""
    if hasattr(os, "register_at_fork"):
        _keep("fork", method, lambda call: os.register_at_fork(after_in_child=call))


def at_exit(method: Any) -> None:
    """Calls a bound method at the interpreter's end, as long as its object is there.

    Python would keep the place of a function that was taken back.
    """
    _keep("exit", method, atexit.register, nothrow=())


def at_out_of_memory(torch: Any, method: Any) -> None:
    """Calls a bound method with what torch tells when it gives up an allocation, as long as its object is there.

    Raises what torch raises where its allocator tells nobody.
    """
    _keep("out of memory", method, torch._C._cuda_attach_out_of_memory_observer)


def _keep(kind: str, method: Any, register: Any, nothrow: tuple[type[BaseException], ...] = (BaseException,)) -> None:
    """What is registered is never taken back: so it is one function in a process, whatever agents come and go.

    `nothrow` does not leave it: raising would replace torch's own exception, or be printed by Python.
    """
    kept: dict[str, Any] = sys.__dict__.setdefault(_KEPT, {})
    if kind not in kept:
        noted: list[tuple[Any, str]] = []

        def call(*arguments: Any) -> None:
            try:
                for reference, name in noted:
                    held = reference()
                    if held is not None:
                        getattr(held, name)(*arguments)
            except nothrow:
                return

        register(call)
        kept[kind] = noted
    alive = [each for each in kept[kind] if each[0]() is not None]
    kept[kind][:] = [*alive, (weakref.ref(method.__self__), method.__name__)]
