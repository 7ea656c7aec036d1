"""Long work beside the screen, on one thread: what is asked last is done next, and what it replaces never."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Optional

from textual.message import Message

from .messages import SnapshotFailed

Work = Callable[[], Message]


class Asker:
    """Does one piece of work at a time and tells its message. Nobody waits for the thread when the program ends."""

    def __init__(self, tell: Callable[[Message], object]) -> None:
        self._tell = tell
        self._wanted: Optional[Work] = None
        self._changed = threading.Condition()
        threading.Thread(target=self._go_on, name="memtui-asker", daemon=True).start()

    def ask(self, work: Work) -> None:
        """Wants this done, in place of what is wanted and has not begun."""
        with self._changed:
            self._wanted = work
            self._changed.notify()

    def _go_on(self) -> None:
        while True:
            with self._changed:
                while self._wanted is None:
                    self._changed.wait()
                work, self._wanted = self._wanted, None
            message: Message
            try:
                message = work()
            except Exception as error:  # noqa: BLE001 - the top of a thread: the app says what is wrong
                message = SnapshotFailed(error)
            del work
            with contextlib.suppress(RuntimeError):  # the app's loop has ended meanwhile
                self._tell(message)
