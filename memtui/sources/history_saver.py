"""Saves the allocator's history of a step beside the interface, on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Optional

from memtui.wire.histories import HistoryNews

from .agent_way import Way
from .history_client import HistoryRefused, ask_history
from .snapshot_file import SnapshotFile, free_name

Told = Callable[[HistoryNews], None]


class HistorySaver:
    """One history at a time. Nobody waits for the thread when the program ends: the agent then forgets it."""

    def __init__(self) -> None:
        self._cancel = threading.Event()
        self._busy = False

    def save(self, agent: Way, pid: int, told: Told) -> Optional[str]:
        """Why it is not begun, else None; `told` is called in the running loop.

        As states come they are the agent's; the last one is "written", with the file as text and size_bytes among
        the figures, or "refused".
        """
        if self._busy:
            return "a step's history is being recorded already"
        self._busy = True
        loop = asyncio.get_running_loop()

        def tell(news: HistoryNews) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(told, news)

        def work() -> None:
            news = self._saved(agent, pid, tell)
            self._busy = False
            tell(news)

        threading.Thread(target=work, name="memtui-history", daemon=True).start()
        return None

    def close(self) -> None:
        """What is not complete is given up."""
        self._cancel.set()

    def _saved(self, agent: Way, pid: int, tell: Told) -> HistoryNews:
        path = free_name("", f"memtui-{pid}")
        try:
            with SnapshotFile(path) as file:
                found = ask_history(agent, 1, told=lambda state: tell(HistoryNews(state)), cancel=self._cancel)
                size_bytes = file.write(found.snapshot)
        except HistoryRefused as error:
            return HistoryNews("refused", str(error))
        except OSError as error:
            return HistoryNews("refused", f"cannot write {path}: {error.strerror or error}")
        return HistoryNews("written", path, {**found.figures, "size_bytes": size_bytes}, found.notices)
