"""Functions that torch and Python keep for good and that keep nothing of the agent's alive."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent import Agent


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


def oom_observer(agent: Agent) -> Any:
    """What torch calls when it gives up an allocation: it must not raise, and torch offers no way to take it off."""
    reference = weakref.ref(agent)

    def observe(device: int, asked: int, device_total: int, device_free: int) -> None:
        try:
            held = reference()
            if held is not None:
                held.out_of_memory(int(device), int(asked), int(device_total), int(device_free))
        except BaseException:  # noqa: BLE001 - raising here would replace the program's own exception
            return

    return observe
