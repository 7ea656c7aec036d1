"""The emulated screen: pyte's cursor, margins and editing, with history, a second screen, and what pyte lacks."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pyte
from pyte import charsets, modes
from pyte.screens import Cursor, Savepoint, StaticDefaultDict
from rich.cells import get_character_cell_size

from memtui.tui.terminal import rendition
from memtui.tui.terminal.cells import BLANK, PLAIN, Cell, Pen, Runs, row_runs
from memtui.tui.terminal.characters import MAX_COMBINING, is_combining, is_shown

#: Private modes that something outside the screen asks about.
APPLICATION_CURSOR = 1
FOCUS_REPORTS = 1004
BRACKETED_PASTE = 2004

_REMEMBERED = frozenset({APPLICATION_CURSOR, 9, 1000, 1002, 1003, FOCUS_REPORTS, 1006, BRACKETED_PASTE})

#: Lines that have left the screen at the top and can be scrolled back to.
HISTORY_LINES = 3000

#: Numbers in sequences are cut to this, which no screen exceeds.
MAX_PARAMETER = 9999

_MAX_PENS = 512


class _PenCells(dict[str, Cell]):
    """The cells of one pen, made once a character."""

    def __init__(self, pen: Pen) -> None:
        super().__init__()
        self._pen = pen

    def __missing__(self, character: str) -> Cell:
        cell = self[character] = Cell(character, self._pen)
        return cell


class Screen(pyte.Screen):  # type: ignore[misc]  # pyte has no types that mypy may follow
    """A screen of cells that keeps what scrolls out of it. `reply` takes answers to the program's queries."""

    # pyte's own, which it does not declare to a type checker.
    columns: int
    lines: int
    cursor: Any
    buffer: Any
    margins: Any
    mode: set[int]
    dirty: set[int]
    tabstops: set[int]

    def __init__(self, columns: int, lines: int, reply: Callable[[bytes], None], history: int = HISTORY_LINES) -> None:
        self.history: collections.deque[Runs] = collections.deque(maxlen=history)
        #: Lines that ever went into the history, dropped ones included: the number of the screen's first line.
        self.scrolled = 0
        self.remembered: set[int] = set()
        self._reply = reply
        self._main: tuple[Any, Savepoint | None] | None = None
        self._saved: Savepoint | None = None
        self._pens: dict[Pen, _PenCells] = {}
        self._last_drawn = ""
        super().__init__(columns, lines)

    # The pen

    @property
    def default_char(self) -> Cell:
        """What an untouched cell holds."""
        return BLANK

    @property
    def pen(self) -> Pen:
        """Colours and attributes of the next character."""
        pen: Pen = self.cursor.attrs.pen
        return pen

    def set_pen(self, pen: Pen) -> None:
        """Write the next characters with this pen."""
        self.cursor.attrs = Cell(" ", pen)
        cells = self._pens.get(pen)
        if cells is None:
            if len(self._pens) >= _MAX_PENS:  # a true-colour gradient has no end
                self._pens.clear()
            cells = self._pens[pen] = _PenCells(pen)
        self._cells = cells

    @property
    def eraser(self) -> Cell | None:
        """What erased cells become: the background colour alone stays; None for a plain blank."""
        background = self.pen.background
        return None if background == PLAIN.background else Cell(" ", Pen(background=background))

    def rendition(self, parameters: str) -> None:
        """SGR."""
        self.set_pen(rendition.apply(self.pen, parameters))

    # Text

    def draw(self, data: str) -> None:
        """Write printable text at the cursor."""
        charset = self.g1_charset if self.charset else self.g0_charset
        if charset is not charsets.LAT1_MAP:
            data = data.translate(charset)
        self._last_drawn = data[-1:]
        if data.isascii() and modes.IRM not in self.mode:
            self._draw_narrow(data)
        else:
            self._draw_any(data)

    def _draw_narrow(self, data: str) -> None:
        cursor, columns, lookup = self.cursor, self.columns, self._cells.__getitem__
        position = 0
        while position < len(data):
            if cursor.x >= columns:
                if modes.DECAWM in self.mode:
                    self._wrap()
                else:
                    cursor.x, position = columns - 1, len(data) - 1
            x = cursor.x
            piece = data[position : position + columns - x]
            self.buffer[cursor.y].update(zip(range(x, x + len(piece)), map(lookup, piece)))
            self.dirty.add(cursor.y)
            cursor.x = x + len(piece)
            position += len(piece)

    def _draw_any(self, data: str) -> None:
        for character in data:
            if not is_shown(character):
                if is_combining(character):
                    self._combine(character)
                continue
            width = get_character_cell_size(character)
            if self.cursor.x + width > self.columns:
                if modes.DECAWM in self.mode:
                    self._wrap()
                else:
                    self.cursor.x = max(0, self.columns - width)
            if modes.IRM in self.mode:
                self.insert_characters(width)
            row, x = self.buffer[self.cursor.y], self.cursor.x
            row[x] = self._cells[character] if width == 1 else Cell(character, self.pen, 2)
            if width == 2 and x + 1 < self.columns:
                row[x + 1] = Cell("", self.pen, 0)
            self.cursor.x = min(x + width, self.columns)
            self.dirty.add(self.cursor.y)

    def _wrap(self) -> None:
        self.carriage_return()
        self.index()

    def _combine(self, character: str) -> None:
        row, x = self.buffer[self.cursor.y], self.cursor.x - 1
        if x > 0 and row[x].width == 0:
            x -= 1
        if x >= 0:
            cell: Cell = row[x]
            if cell.data and len(cell.data) <= MAX_COMBINING:
                row[x] = cell._replace(data=cell.data + character)
                self.dirty.add(self.cursor.y)

    def repeat(self, count: int = 1) -> None:
        """REP: the last character again."""
        self.draw(self._last_drawn * min(count or 1, self.columns * self.lines))

    # Scrolling

    def index(self) -> None:
        """Down one line; at the bottom the top line goes into the history."""
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom and top == 0:
            self._keep_top_line()
        super().index()

    def _keep_top_line(self) -> None:
        if self._main is None:  # the second screen has no history
            self.history.append(row_runs(self.buffer.get(0, {}), self.columns))
            self.scrolled += 1

    def scroll_up(self, count: int = 1) -> None:
        """SU: the lines within the margins move up."""
        self._scroll(count, at_top=False)

    def scroll_down(self, count: int = 1) -> None:
        """SD: the lines within the margins move down."""
        self._scroll(count, at_top=True)

    def _scroll(self, count: int, *, at_top: bool) -> None:
        top, bottom = self.margins or (0, self.lines - 1)
        x, y = self.cursor.x, self.cursor.y
        self.cursor.y = top if at_top else bottom
        for _ in range(min(count or 1, bottom - top + 1)):
            if at_top:
                self.reverse_index()
            else:
                self.index()
        self.cursor.x, self.cursor.y = x, y

    def clear_history(self) -> None:
        """Forget the lines that have scrolled out."""
        self.history.clear()

    # Erasing

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        """EL: to the end, from the beginning, or all."""
        ranges = {
            0: (self.cursor.x, self.columns),
            1: (0, min(self.cursor.x + 1, self.columns)),
            2: (0, self.columns),
        }
        if how in ranges:
            self._erase(self.cursor.y, *ranges[how])

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        """ED: below, above, all; 3 is the history."""
        ranges = {0: (self.cursor.y + 1, self.lines), 1: (0, self.cursor.y), 2: (0, self.lines)}
        if how == 3:
            self.clear_history()
        elif how in ranges:
            for y in range(*ranges[how]):
                self._erase(y, 0, self.columns)
            if how != 2:
                self.erase_in_line(how)

    def erase_characters(self, count: int | None = None) -> None:
        """ECH: from the cursor on."""
        self._erase(self.cursor.y, self.cursor.x, min(self.cursor.x + (count or 1), self.columns))

    def _erase(self, y: int, begin: int, end: int) -> None:
        self.dirty.add(y)
        row, eraser = self.buffer[y], self.eraser
        if eraser is not None:
            row.update(dict.fromkeys(range(begin, end), eraser))
        elif begin == 0 and end == self.columns:
            row.clear()
        else:
            for x in range(begin, end):
                row.pop(x, None)

    # Modes

    def private_mode(self, number: int, on: bool) -> None:
        """DECSET and DECRST of one mode; unknown ones do nothing."""
        if number in (47, 1047, 1049):
            self._use_second_screen(on, with_cursor=number == 1049)
        elif number == 1048:
            (self.save_cursor if on else self.restore_cursor)()
        elif number in _REMEMBERED:
            (self.remembered.add if on else self.remembered.discard)(number)
        elif number == 25:
            self.cursor.hidden = not on
        elif number in (5, 6, 7):
            mode = number << 5  # pyte's way of telling private modes apart
            (self.mode.add if on else self.mode.discard)(mode)
            if mode == modes.DECOM:
                self.cursor_position()
            if mode == modes.DECSCNM:
                self.dirty.update(range(self.lines))

    def plain_mode(self, number: int, on: bool) -> None:
        """SM and RM: insert mode, newline mode."""
        if number in (modes.IRM, modes.LNM):
            (self.mode.add if on else self.mode.discard)(number)

    @property
    def reversed(self) -> bool:
        """The whole screen is shown with colours swapped (DECSCNM)."""
        return modes.DECSCNM in self.mode

    @property
    def second(self) -> bool:
        """The second screen is in use, as full-screen programs do."""
        return self._main is not None

    def _use_second_screen(self, on: bool, *, with_cursor: bool) -> None:
        if on and self._main is None:
            if with_cursor:
                self.save_cursor()
            self._main = (self.buffer, self._saved)
            self.buffer = self._fresh_buffer()
        elif not on and self._main is not None:
            self.buffer, self._saved = self._main
            self._main = None
            if with_cursor:
                self.restore_cursor()
        else:
            return
        self.margins = None
        self.dirty.update(range(self.lines))

    def _fresh_buffer(self) -> Any:
        return collections.defaultdict(lambda: StaticDefaultDict(BLANK))

    # The whole

    def reset(self) -> None:
        """RIS: as new, except for the history."""
        super().reset()
        self._main = None
        self._saved = None
        self.remembered.clear()
        self.buffer = self._fresh_buffer()
        self.cursor = Cursor(0, 0, BLANK)
        self.set_pen(PLAIN)

    def soft_reset(self) -> None:
        """DECSTR: modes, margins and pen, not the text."""
        self.mode = {modes.DECAWM, modes.DECTCEM}
        self.margins = None
        self.remembered.discard(APPLICATION_CURSOR)
        self.cursor.hidden = False
        self.set_pen(PLAIN)
        self._saved = None
        self.charset, self.g0_charset, self.g1_charset = 0, charsets.LAT1_MAP, charsets.VT100_MAP

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Another size: lines above the cursor go into the history before any text is lost; nothing reflows."""
        lines, columns = lines or self.lines, columns or self.columns
        if (lines, columns) == (self.lines, self.columns):
            return
        self.margins = None
        below = max(0, self.cursor.y - lines + 1)
        self._scroll_off(below)
        for y in [y for y in self.buffer if y >= lines]:
            del self.buffer[y]
        self.lines, self.columns = lines, columns
        self.tabstops = set(range(8, columns, 8))
        self.cursor.x = min(self.cursor.x, columns)
        self.cursor.y = min(self.cursor.y, lines - 1)
        self.dirty.clear()
        self.dirty.update(range(lines))

    def _scroll_off(self, count: int) -> None:
        y = self.cursor.y
        self.cursor.y = self.lines - 1
        for _ in range(count):
            self.index()
        self.cursor.y = y - count

    def save_cursor(self) -> None:
        """DECSC. One place, as in every terminal: pyte's stack would grow with each call."""
        self.savepoints.clear()
        super().save_cursor()
        self._saved = self.savepoints.pop()

    def restore_cursor(self) -> None:
        """DECRC; home where nothing was saved."""
        self.savepoints.clear()
        if self._saved is None:
            self.mode.discard(modes.DECOM)
            self.cursor_position()
            return
        hidden = self.cursor.hidden  # visibility is a mode, not part of what is saved
        self.savepoints.append(self._saved._replace(cursor=_copy(self._saved.cursor)))
        super().restore_cursor()
        self.cursor.hidden = hidden
        self.set_pen(self.pen)

    def cursor_to_line(self, line: int | None = None) -> None:
        """VPA, within the margins in origin mode."""
        self.cursor.y = (line or 1) - 1
        if modes.DECOM in self.mode and self.margins is not None:
            self.cursor.y += self.margins.top
        self.ensure_vbounds()

    def answer(self, data: str) -> None:
        """Send the terminal's answer to the program."""
        self._reply(data.encode("ascii"))

    def runs(self, y: int) -> Runs:
        """Row `y` of the screen."""
        return row_runs(self.buffer.get(y, {}), self.columns)


def _copy(cursor: Cursor) -> Cursor:
    copied = Cursor(cursor.x, cursor.y, cursor.attrs)
    copied.hidden = cursor.hidden
    return copied
