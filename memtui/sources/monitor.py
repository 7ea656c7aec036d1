"""A live process under observation: every source feeding one session."""

from __future__ import annotations

import time
from typing import Callable, Optional

from memtui.session.session import Session


class Monitor:
    """Owns the sources of one process and its session; all of it in one event loop."""

    replay = False

    def __init__(self, pid: Optional[int] = None) -> None:
        self.session = Session(pid)
        self.program = None
        self.on_change: Optional[Callable[[], None]] = None  # called after each change, throttled by the consumer

    def now_ns(self) -> int:
        """The monitored machine's monotonic clock."""
        return time.monotonic_ns()

    async def start(self) -> None:
        """Starts the sources; returns at once."""

    async def stop(self) -> None:
        """Stops the sources; the program goes on."""
