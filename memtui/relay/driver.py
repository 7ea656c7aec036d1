"""The driver's figures, read on a thread that may hang without holding anything else up."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from memtui.sources.driver_processes import listed_as

_PERIOD_SECONDS, _ABSENT_SECONDS, _LONGEST_SECONDS = 1.0, 5.0, 10.0
#: At most one part in so many of a processor.
_COST_FACTOR = 50


class DriverThread:
    """Tells "driver" readings of all devices, and as which pid the driver has each of those that `pids` says."""

    def __init__(self, tell: Callable[[dict[str, Any]], None], pids: Callable[[], Collection[int]]) -> None:
        self._tell, self._pids = tell, pids
        self._stop = threading.Event()
        self.on_devices: set[int] = set()

    def start(self) -> None:
        """Starts the thread."""
        threading.Thread(target=self._run, name="memtui-driver", daemon=True).start()

    def stop(self) -> None:
        """Asks it to end; returns at once."""
        self._stop.set()

    def _run(self) -> None:
        from memtui.sources.driver import DriverSource

        source, pause = DriverSource(), 0.0
        while not self._stop.wait(pause):
            begun = time.monotonic()
            reading = source.read(0, None)
            cost = time.monotonic() - begun
            listed = {process.pid for device in reading.devices for process in device.others or ()}
            self.on_devices = listed
            known = {str(pid): listed_as(listed, pid) for pid in self._pids()}
            self._tell({"is": "driver", "reading": dataclasses.asdict(reading), "listed": known})
            least = _PERIOD_SECONDS if reading.devices else _ABSENT_SECONDS
            pause = min(max(least, _COST_FACTOR * cost), _LONGEST_SECONDS)
        source.close()
