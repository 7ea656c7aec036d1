"""Calls during which Python's collector rests."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any


def uncollected(read: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What `read` returns. What torch makes would set the collector off, through all the program's objects.

    Torch holds Python's lock while it does: no other thread sees the collector resting.
    """
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        return read(*arguments)
    finally:
        if was_enabled:
            gc.enable()
