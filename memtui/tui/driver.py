"""Textual's driver, on standard output."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from typing import Any

from textual.drivers.linux_driver import LinuxDriver


class OutputDriver(LinuxDriver):
    """Draws where a person expects it: Textual's own draws on standard error, so that `2> errors` is a blank screen.

    Ends when the terminal is gone, also where nobody sends the signal for it: Textual's own would read for ever.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if sys.__stdout__ is not None:
            # A character that the terminal's encoding lacks, in the command palette, must not end the app.
            sys.__stdout__.reconfigure(errors="replace")
            self._file = sys.__stdout__

    def start_application_mode(self) -> None:
        """As Textual's, and begins to watch the terminal."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        threading.Thread(target=self._watch_terminal, name="memtui-terminal", daemon=True).start()

    def _watch_terminal(self) -> None:
        gone = select.poll()
        gone.register(self.fileno, 0)  # only what is always told: that the other end has hung up
        while not self.exit_event.is_set():
            if gone.poll(1000):
                os.kill(os.getpid(), signal.SIGHUP)
                return
