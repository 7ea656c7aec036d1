"""Getting the agent into a process that was started without it, beside everything else that goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from memtui.inject.attach import PATIENCE_SECONDS, Outcome, Progress, attach


class Entry:
    """One attempt, on a thread of its own; `told` hears on the event loop what it is at."""

    def __init__(self, pid: int, told: Callable[[str], None]) -> None:
        self._pid, self._told = pid, told
        self._cancel = threading.Event()
        self._thread: asyncio.Future[Outcome] | None = None

    async def run(self) -> Outcome:
        """How it ended; where this is cancelled it goes on until `close`."""
        loop = asyncio.get_running_loop()

        def tell(progress: Progress) -> None:
            text = "" if progress.stage == "started" else progress.text
            loop.call_soon_threadsafe(self._told, text)

        self._thread = loop.run_in_executor(
            None, lambda: attach(self._pid, timeout=PATIENCE_SECONDS, progress=tell, cancel=self._cancel)
        )
        return await asyncio.shield(self._thread)

    async def close(self) -> None:
        """Takes a queued call back; waits until the process is as it was, or watched."""
        self._cancel.set()
        if self._thread is not None:
            await asyncio.wait([self._thread])
