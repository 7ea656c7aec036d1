"""The terminal as a whole: bytes in, a screen out, and answers to the program's questions."""

from __future__ import annotations

import re
from collections.abc import Callable

from memtui.tui.terminal.parser import Parser
from memtui.tui.terminal.screen import MAX_PARAMETER, Screen

_MAX_PARAMETERS = 16

#: Device attributes: a VT102, as pyte calls itself, without any extension that programs might want to use.
_PRIMARY_ATTRIBUTES = "\x1b[?6c"
_SECONDARY_ATTRIBUTES = "\x1b[>0;0;0c"

_PRIVATE_MODE = re.compile(rb"\x1b\[\?([0-9;]{1,64})([hl])")


class Emulator:
    """A terminal of `columns` by `lines`; `reply` takes what it answers, unless told to keep quiet."""

    def __init__(self, columns: int, lines: int, reply: Callable[[bytes], None]) -> None:
        self._reply = reply
        self._quiet = False
        self.screen = Screen(columns, lines, self._answer)
        self._parser = Parser(self)
        self.draw = self.screen.draw
        screen = self.screen
        self._controls: dict[str, Callable[[], None]] = {
            "\b": screen.backspace,
            "\t": screen.tab,
            "\n": screen.linefeed,
            "\v": screen.linefeed,
            "\f": screen.linefeed,
            "\r": screen.carriage_return,
            "\x0e": screen.shift_out,
            "\x0f": screen.shift_in,
            "\x84": screen.index,
            "\x85": self._next_line,
            "\x88": screen.set_tab_stop,
            "\x8d": screen.reverse_index,
        }
        self._escapes: dict[str, Callable[[], None]] = {
            "7": screen.save_cursor,
            "8": screen.restore_cursor,
            "D": screen.index,
            "E": self._next_line,
            "H": screen.set_tab_stop,
            "M": screen.reverse_index,
            "Z": lambda: self._answer_text(_PRIMARY_ATTRIBUTES),
            "c": screen.reset,
        }
        #: Sequences whose parameters are up to so many numbers, 0 where left out.
        self._numeric: dict[str, tuple[Callable[..., None], int]] = {
            "@": (screen.insert_characters, 1),
            "A": (screen.cursor_up, 1),
            "B": (screen.cursor_down, 1),
            "C": (screen.cursor_forward, 1),
            "D": (screen.cursor_back, 1),
            "E": (screen.cursor_down1, 1),
            "F": (screen.cursor_up1, 1),
            "G": (screen.cursor_to_column, 1),
            "H": (screen.cursor_position, 2),
            "I": (self._forward_tabs, 1),
            "J": (screen.erase_in_display, 1),
            "K": (screen.erase_in_line, 1),
            "L": (screen.insert_lines, 1),
            "M": (screen.delete_lines, 1),
            "P": (screen.delete_characters, 1),
            "S": (screen.scroll_up, 1),
            "T": (screen.scroll_down, 1),
            "X": (screen.erase_characters, 1),
            "Z": (self._back_tabs, 1),
            "`": (screen.cursor_to_column, 1),
            "a": (screen.cursor_forward, 1),
            "b": (screen.repeat, 1),
            "c": (self._attributes, 1),
            "d": (screen.cursor_to_line, 1),
            "e": (screen.cursor_down, 1),
            "f": (screen.cursor_position, 2),
            "g": (screen.clear_tab_stop, 1),
            "n": (self._status, 1),
            "r": (self._margins, 2),
            "s": (screen.save_cursor, 0),
            "t": (self._window, 1),
            "u": (screen.restore_cursor, 0),
        }

    def feed(self, data: bytes, *, replayed: bool = False) -> None:
        """Obey the program's output; what it asked in the past (`replayed`) is not answered again."""
        self._quiet = replayed
        self._parser.feed(data)

    def skip(self, skipped: bytes) -> None:
        """Obey only the modes of output that is too much to show."""
        self._parser.reset()
        for numbers, action in _PRIVATE_MODE.findall(skipped):
            for number in numbers.split(b";"):
                if number:
                    self.screen.private_mode(min(int(number), MAX_PARAMETER), action == b"h")
        self.screen.rendition("0")

    # What the parser calls

    def control(self, character: str) -> None:
        """A C0 or C1 control; the bell and others do nothing."""
        action = self._controls.get(character)
        if action is not None:
            action()

    def escape(self, intermediate: str, final: str) -> None:
        """An escape sequence without parameters."""
        if intermediate in ("(", ")"):
            self.screen.define_charset(final, mode=intermediate)
        elif intermediate == "#" and final == "8":
            self.screen.alignment_display()
        elif not intermediate and final in self._escapes:
            self._escapes[final]()

    def csi(self, parameters: str, intermediate: str, final: str) -> None:
        """A control sequence."""
        if parameters[:1] in ("?", ">", "<", "="):
            self._private(parameters[0], parameters[1:], intermediate, final)
        elif intermediate:
            if (intermediate, final) == ("!", "p"):
                self.screen.soft_reset()
        elif final == "m":
            self.screen.rendition(parameters)
        elif final in ("h", "l"):
            for number in _numbers(parameters):
                self.screen.plain_mode(number, final == "h")
        elif final in self._numeric:
            action, count = self._numeric[final]
            action(*_numbers(parameters)[:count])

    def _private(self, marker: str, parameters: str, intermediate: str, final: str) -> None:
        if marker == ">":
            if final == "c" and not intermediate:
                self._answer_text(_SECONDARY_ATTRIBUTES)
        elif marker == "?":
            numbers = _numbers(parameters)
            if final in ("h", "l") and not intermediate:
                for number in numbers:
                    self.screen.private_mode(number, final == "h")
            elif final in ("J", "K") and not intermediate:  # selective erase; nothing here is protected
                self._numeric[final][0](*numbers[:1])
            elif final == "n" and numbers[:1] == [6]:
                self._report_cursor("?")
            elif final == "p" and intermediate == "$":
                # A mode it does not know: programs then leave it alone.
                self._answer_text(f"\x1b[?{numbers[0] if numbers else 0};0$y")

    # Sequences that take more than one call

    def _next_line(self) -> None:
        self.screen.carriage_return()
        self.screen.index()

    def _forward_tabs(self, count: int = 1) -> None:
        for _ in range(min(count or 1, self.screen.columns)):
            self.screen.tab()

    def _back_tabs(self, count: int = 1) -> None:
        screen = self.screen
        for _ in range(min(count or 1, screen.columns)):
            screen.cursor.x = max((stop for stop in screen.tabstops if stop < screen.cursor.x), default=0)

    def _margins(self, top: int = 0, bottom: int = 0) -> None:
        screen = self.screen
        if (not top and not bottom) or (max(top, 1), bottom or screen.lines) == (1, screen.lines):
            screen.margins = None
            screen.cursor_position()
        else:
            screen.set_margins(top or 1, bottom or screen.lines)

    def _attributes(self, mode: int = 0) -> None:
        if mode == 0:
            self._answer_text(_PRIMARY_ATTRIBUTES)

    def _status(self, what: int = 0) -> None:
        if what == 5:
            self._answer_text("\x1b[0n")
        elif what == 6:
            self._report_cursor("")

    def _report_cursor(self, marker: str) -> None:
        screen = self.screen
        column = min(screen.cursor.x, screen.columns - 1) + 1
        self._answer_text(f"\x1b[{marker}{screen.cursor.y + 1};{column}R")

    def _window(self, what: int = 0) -> None:
        if what == 18:
            self._answer_text(f"\x1b[8;{self.screen.lines};{self.screen.columns}t")

    def _answer_text(self, text: str) -> None:
        self._answer(text.encode("ascii"))

    def _answer(self, data: bytes) -> None:
        if not self._quiet:
            self._reply(data)


def _numbers(parameters: str) -> list[int]:
    if not parameters:
        return []
    fields = parameters.split(";")[:_MAX_PARAMETERS]
    return [_number(field.partition(":")[0]) for field in fields]


def _number(field: str) -> int:
    # The length first: turning a very long one into a number takes long.
    return min(int(field), MAX_PARAMETER) if field.isdigit() and len(field) <= 9 else 0
