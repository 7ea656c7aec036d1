"""The driver read over and over, in a thread that can hang without holding anything else up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Optional

from memtui.session.readings import DriverReading

#: Once a second; slower where a reading takes long: at most one part in fifty of a processor.
_PERIOD_SECONDS = 1.0
_COST_FACTOR = 50
_LONGEST_PERIOD_SECONDS = 10.0
#: While there is no driver, asking is cheap but in vain.
_ABSENT_PERIOD_SECONDS = 5.0


class DriverPoller:
    """Calls `received` on the event loop with each reading for process `pid()` and the devices `uuids()` (None: all).

    With `thrift` it does so that many times more rarely, at that much less cost.
    NVML is loaded in the thread, after the first paint: its start can take a second.
    """

    def __init__(
        self,
        pid: Callable[[], Optional[int]],
        uuids: Callable[[], Optional[tuple[str, ...]]],
        received: Callable[[DriverReading], None],
        thrift: int = 1,
    ) -> None:
        self._pid, self._uuids, self._received = pid, uuids, received
        self._thrift = thrift
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Starts the thread; from the event loop."""
        loop = asyncio.get_running_loop()
        # A daemon: a call into a wedged driver never returns, and nobody shall wait for it.
        self._thread = threading.Thread(target=self._run, args=(loop,), name="memtui-driver", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to end; returns at once."""
        self._stop.set()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        from .driver import DriverSource

        source = DriverSource()
        pause = 0.0
        while not self._stop.wait(pause):
            pid, uuids = self._pid(), self._uuids()
            begun = time.monotonic()
            if pid is None or uuids == ():
                pause = 0.2
                continue
            reading = source.read(pid, uuids)
            cost = time.monotonic() - begun
            try:
                loop.call_soon_threadsafe(self._deliver, reading)
            except RuntimeError:
                break  # the loop is closed
            least = _PERIOD_SECONDS * self._thrift if reading.devices else _ABSENT_PERIOD_SECONDS
            pause = min(max(least, _COST_FACTOR * self._thrift * cost), max(least, _LONGEST_PERIOD_SECONDS))
        source.close()

    def _deliver(self, reading: DriverReading) -> None:
        if not self._stop.is_set():
            self._received(reading)
