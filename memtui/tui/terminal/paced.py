"""A terminal that parses in portions, and only what somebody may still want to see."""

from __future__ import annotations

from collections.abc import Callable

from memtui.tui.terminal.backlog import BEHIND_BYTES, HIDDEN_BYTES, Backlog
from memtui.tui.terminal.emulator import Emulator
from memtui.tui.terminal.screen import Screen

#: Parsed at one look; the rest waits for the next, or is skipped when too much waits.
LOOK_BYTES = 32 * 1024


class PacedTerminal:
    """An emulator behind a bounded backlog. Parsing costs a second for 2 to 4 MB; nobody reads at that speed.

    Skipped output is announced on the screen where it would have been.
    """

    def __init__(self, columns: int, lines: int, reply: Callable[[bytes], None]) -> None:
        self._reply = reply
        self._emulator = Emulator(columns, lines, reply)
        self._backlog = Backlog()
        #: Output dropped since the last that was parsed.
        self._gap_bytes = 0
        #: The program waits for an answer of its terminal.
        self.asked = False

    @property
    def screen(self) -> Screen:
        """What has been parsed."""
        return self._emulator.screen

    @property
    def waiting_bytes(self) -> int:
        """What has not."""
        return self._backlog.size

    def arrive(self, data: bytes, *, replayed: bool, shown: bool) -> bool:
        """Take output; whether it is worth a look, which it is not while hidden, unless the program asks something."""
        self.asked |= self._backlog.append(data, replayed)
        if shown or self.asked:
            return True
        # Twice the size, so that a fast program costs one trim in a while and not one a piece.
        self._trim(2 * HIDDEN_BYTES, HIDDEN_BYTES)
        return False

    def look(self, *, shown: bool) -> None:
        """Parse a portion; all there is if the program has asked something while hidden."""
        self._trim(HIDDEN_BYTES, BEHIND_BYTES)
        self._announce_gap()
        self._parse(LOOK_BYTES if shown else HIDDEN_BYTES)
        self.asked = False

    def lose(self, lost_bytes: int) -> None:
        """Note that output was lost before it came here."""
        while self._backlog.size:
            self._parse(HIDDEN_BYTES)
        self._gap_bytes += lost_bytes
        self._emulator.skip(b"")
        self._announce_gap()

    def reset(self) -> None:
        """Begin again, with an empty screen and history."""
        self._emulator = Emulator(self.screen.columns, self.screen.lines, self._reply)
        self._backlog.clear()
        self._gap_bytes = 0
        self.asked = False

    def _parse(self, budget_bytes: int) -> None:
        while budget_bytes > 0:
            data, replayed = self._backlog.take(budget_bytes)
            if not data:
                break
            self._emulator.feed(data, replayed=replayed)
            budget_bytes -= len(data)

    def _trim(self, allowed_bytes: int, kept_bytes: int) -> None:
        if self._backlog.size > allowed_bytes:
            dropped = self._backlog.trim(kept_bytes)
            self._gap_bytes += len(dropped)
            self._emulator.skip(dropped)

    def _announce_gap(self) -> None:
        screen = self.screen
        if self._gap_bytes and not screen.second:  # a full-screen program draws itself again
            if screen.cursor.x:
                screen.carriage_return()
                screen.linefeed()
            screen.rendition("2")
            screen.draw(f"… {max(1, self._gap_bytes // 1024):,} KiB skipped")
            screen.rendition("0")
            screen.carriage_return()
            screen.linefeed()
        self._gap_bytes = 0
