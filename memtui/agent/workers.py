"""Autograd's own threads: on one of them run the hooks of a device's gradients, inside the training's backward pass."""

from __future__ import annotations

import _thread
import threading
import time
from collections import deque
from typing import Any

from .notes import IN_HOOK


class Workers:
    """Those on which optimizers were seen to step."""

    def __init__(self, steps: dict[int, int], noted: deque[Any]) -> None:
        self._known: set[int] = set()
        self._steps, self._noted = steps, noted

    def __contains__(self, thread: int) -> bool:
        return thread in self._known

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has stepped on this thread, which is not the training's. Of many in one pass the first is noted.

        Nothing where Python has started the thread: another training's, perhaps.
        """
        current = _thread.get_ident()
        if current not in self._known:
            if not is_foreign(current):
                return
            self._known.add(current)
        key = id(optimizer)
        self._steps[key] = self._steps.get(key, 0) + 1
        try:
            latest: Any = self._noted[-1]
        except IndexError:  # nothing is noted, or it has just been taken in
            latest = 0
        if type(latest) is int or latest[0] != IN_HOOK:
            self._noted.append((IN_HOOK, time.monotonic_ns(), 0))


def is_foreign(thread: int) -> bool:
    """Whether Python has not started this thread."""
    threads = {each.ident: each for each in threading.enumerate()}
    return isinstance(threads.get(thread), (type(None), threading._DummyThread))
