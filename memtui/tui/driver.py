"""Textual's driver, on standard output."""

from __future__ import annotations

import sys
from typing import Any

from textual.drivers.linux_driver import LinuxDriver


class OutputDriver(LinuxDriver):
    """Draws where a person expects it: Textual's own draws on standard error, so that `2> errors` is a blank screen."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if sys.__stdout__ is not None:
            # A character that the terminal's encoding lacks, in the command palette, must not end the app.
            sys.__stdout__.reconfigure(errors="replace")
            self._file = sys.__stdout__
