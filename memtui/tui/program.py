"""Between the monitored program and its tab: output one way; keys, answers and sizes the other."""

from __future__ import annotations

from typing import Callable, Optional

from .feed import ExitText, Program
from .widgets.output import OutputPane


class ProgramTab:
    """The listener of a program (`ProgramListener` of the sources), and the pane that shows what it hears."""

    def __init__(self, program: Program, ended: Callable[[Optional[ExitText]], None]) -> None:
        self.program = program
        self.pane = OutputPane(id="output")
        self._ended = ended

    # From the program

    def program_output(self, data: bytes, replayed: bool) -> None:
        """Output, for the pane."""
        self.pane.feed(data, replayed=replayed)

    def program_lost(self, lost_bytes: int) -> None:
        """A gap, for the pane to show."""
        self.pane.note_lost(lost_bytes)

    def program_stopped(self, stopped: bool) -> None:
        """Nothing: the session says what state the process is in."""

    def program_exited(self, status: ExitText) -> None:
        """The end; descendants may still write."""
        self._ended(status)

    def program_closed(self, reason: Optional[str]) -> None:
        """Nothing more comes."""
        self._ended(None)

    # From the pane

    def on_input(self, message: OutputPane.Input) -> None:
        """Keys for the program."""
        self.program.send_input(message.data)

    def on_reply(self, message: OutputPane.Reply) -> None:
        """The terminal's answer to the program."""
        self.program.send_reply(message.data)

    def on_resized(self, message: OutputPane.Resized) -> None:
        """The size of the program's terminal."""
        self.program.resize(message.columns, message.rows)
