"""The tensors tab: what is alive, the largest first, to sort, filter and scroll through."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import ClassVar, Optional

from textual import events
from textual.binding import Binding, BindingType

from memtui.analysis import units
from memtui.analysis.bar import band
from memtui.analysis.tensors import COLUMNS, Choice, TensorRow, TensorTable, share
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.messages import TabTurned
from memtui.tui.rows import Line, Row, cells, clip, shorten

from .lines import Lines

WHEEL_LINES = 3
_FILTER_LENGTH = 60
#: Columns that only wide screens have, by the width from which they do.
CATEGORY_FROM, BAR_FROM = 104, 120
_LETTER, _BYTES, _SHARE, _CATEGORY, _LEAST_NAME = 3, 11, 8, 17, 22
#: The narrowest and widest of columns that are as wide as what stands in them.
_SHAPE, _DTYPE = (5, 18), (8, 14)
_BAR = (10, 40)


class TensorList(Lines, can_focus=True):
    """Shows a table of tensors; focused, it has the keys to sort and filter it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort(1)", "sort by the next column"),
        Binding("S", "sort(-1)", show=False),
        Binding("r", "turn", "the other way round"),
        Binding("c", "category(1)", "the next category only"),
        Binding("C", "category(-1)", show=False),
        Binding("slash", "enter", "filter by text"),
        Binding("escape", "escape", show=False),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "top", show=False),
        Binding("end", "bottom", show=False),
    ]

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.choice = Choice()
        self.table: Optional[TensorTable] = None
        self.categories: tuple[str, ...] = ()  # that can be chosen
        self.age = ""  # "3 s ago"
        self.hint: tuple[str, str] = (roles.TEXT, "")  # (role, text) where there is no table
        self.first = 0  # of the rows in view
        self._last_first = 0  # with which the last row is in view
        self.entering = False  # the keyboard writes the filter

    # What is shown

    def source(self) -> object:
        """The table, and what of it is in view."""
        return self.table, self.choice, self.age, self.hint, self.first, self.entering

    def draw(self, width: int, height: int) -> list[Row]:
        """Where and when, what can be chosen, the columns' names, the rows, the sums."""
        table = self.table
        if table is None:
            role, text = self.hint
            pieces = textwrap.wrap(self.look.text(text), max(10, min(90, width - 2)))
            return [Line().add(f" {piece}", role).row(width) for piece in pieces]
        layout = _Layout(table, width)
        foot = self._foot(table, layout)
        head = [self._title(table, width), self._choices(width), layout.head(self.choice, self.look)]
        if height < 9:
            del head[1]
        room = max(0, height - len(head) - len(foot))
        self._last_first = max(0, len(table.rows) - room)
        self.first = min(self.first, self._last_first)
        shown = table.rows[self.first : self.first + room]
        head[0] = self._position(head[0], len(shown), table, width)
        rows = [layout.row(row, self.look) for row in shown]
        if not rows and room:
            rows.append(Line().add("   nothing matches the filter; escape: all of them", roles.TEXT).row(width))
        # The sums stand under the rows: with few of them, not at the far end of the screen.
        return [*head, *rows, *foot]

    def _title(self, table: TensorTable, width: int) -> Row:
        count = f"{len(table.rows):,} of {table.listed_count:,} rows" if self.choice.filtered else "live tensors"
        line = Line().add(f" {count} ", roles.BRIGHT)
        when = self.look.text(f"{table.moment} · {self.age}")
        when = shorten(when, width - line.width - 1, self.look.glyphs.ellipsis)
        moment = len(self.look.text(table.moment))
        return line.add(when[:moment], roles.TEXT).add(when[moment:], roles.DIM).row(width)

    def _position(self, title: Row, shown: int, table: TensorTable, width: int) -> Row:
        if not 0 < shown < len(table.rows):
            return title
        text = f"{self.first + 1:,} to {self.first + shown:,} of {len(table.rows):,} "
        used = len(title.text.rstrip())
        if used + len(text) + 2 > width:
            return title
        start = width - len(text)
        return Row(title.text[:start] + text, title.roles[:start] + roles.DIM * len(text))

    def _choices(self, width: int) -> Row:
        choice = self.choice
        # Of sizes the largest comes first, of names the first of the alphabet.
        down = choice.reverse != (choice.column in ("bytes", "shape"))
        order = [("s", roles.KEY), (f" by {choice.column} ", roles.DIM)]
        order.append((self.look.text("↓" if down else "↑"), roles.BRIGHT))
        reverse = [("r", roles.KEY), (" reverse", roles.DIM)]
        category = [("c", roles.KEY)]
        if choice.category is None:
            category.append((" all categories", roles.DIM))
        else:
            shown = band(choice.category, 0)
            category += [(" ", " "), (self.look.text(shown.letter), roles.ink(choice.category))]
            category.append((f" {self.look.text(shown.label)}", roles.BRIGHT))
        wanted = [("/", roles.KEY), (" ", " ")]
        text = self.look.text(choice.text)
        if self.entering:
            wanted += [(f"{text}_", roles.ACTIVE), ("  enter: keep  escape: all", roles.DIM)]
        elif text:
            wanted += [(text, roles.BRIGHT), ("  escape: all", roles.DIM)]
        else:
            wanted.append(("filter", roles.DIM))
        parts = [order, reverse, category, wanted]
        for dropped in (reverse, order, category):
            if sum(len(cells(each)) for part in parts for each, _ in part) + 3 * len(parts) <= width + 1:
                break
            parts.remove(dropped)
        line = Line().add(" ", " ")
        for part in parts:
            line.add("   " if line.width > 1 else "", " ")
            for each, role in part:
                line.add(each, role)
        return line.row(width)

    def _foot(self, table: TensorTable, layout: _Layout) -> list[Row]:
        rows = []
        if self.choice.filtered:
            rows.append(layout.sum("sum of these", table.rows_bytes, roles.TEXT))
            left_out = f"left out: {_rows(table.left_out_count)}"
            if table.others_count:
                left_out += f", {table.others_count:,} smaller"
            rows.append(layout.sum(left_out, table.left_out_bytes + table.others_bytes, roles.DIM))
        elif table.others_count or table.others_bytes:
            rows.append(layout.sum(f"{table.others_count:,} smaller", table.others_bytes, roles.DIM))
        rows.append(layout.sum("allocated", table.allocated_bytes, roles.BRIGHT))
        return rows

    # Keys

    def on_key(self, event: events.Key) -> None:
        """While the filter is written every key is text."""
        if not self.entering or event.key == "escape":
            return
        text = self.choice.text
        if event.key == "enter":
            self.entering = False
        elif event.key == "backspace":
            text = text[:-1]
        elif event.key == "ctrl+u":
            text = ""
        elif event.character is not None and event.is_printable:
            text = (text + event.character)[:_FILTER_LENGTH]
        else:
            return  # arrows scroll, ctrl+c leaves
        event.stop()
        event.prevent_default()
        self._choose(replace(self.choice, text=text))

    def on_paste(self, event: events.Paste) -> None:
        """Pasted text, while the filter is written."""
        if self.entering:
            event.stop()
            self._choose(replace(self.choice, text=(self.choice.text + event.text.strip())[:_FILTER_LENGTH]))

    def on_blur(self) -> None:
        """The keyboard goes elsewhere."""
        self.entering = False

    def on_mouse_scroll_down(self) -> None:
        """The wheel moves the rows."""
        self.action_move(WHEEL_LINES)

    def on_mouse_scroll_up(self) -> None:
        """The wheel moves the rows."""
        self.action_move(-WHEEL_LINES)

    def action_enter(self) -> None:
        """The keyboard writes the filter from now on."""
        self.entering = self.table is not None
        self.post_message(TabTurned())

    def action_escape(self) -> None:
        """Everything is shown again."""
        self.entering = False
        self._choose(replace(self.choice, text="", category=None))

    def action_sort(self, by: int) -> None:
        """Sorts by another column."""
        place = COLUMNS.index(self.choice.column)
        self._choose(replace(self.choice, column=COLUMNS[(place + by) % len(COLUMNS)], reverse=False))

    def action_turn(self) -> None:
        """Turns the order round."""
        self._choose(replace(self.choice, reverse=not self.choice.reverse))

    def action_category(self, by: int) -> None:
        """Shows one category only, or all again."""
        names = (None, *self.categories)
        place = names.index(self.choice.category) if self.choice.category in names else 0
        self._choose(replace(self.choice, category=names[(place + by) % len(names)]))

    def action_move(self, lines: int) -> None:
        """Scrolls."""
        self.first = max(0, min(self.first + lines, self._last_first))
        self.post_message(TabTurned())

    def action_page(self, direction: int) -> None:
        """Scrolls by what is in view."""
        self.action_move(direction * max(1, self.size.height - 7))

    def action_top(self) -> None:
        """The first rows."""
        self.action_move(-self.first)

    def action_bottom(self) -> None:
        """The last rows."""
        self.action_move(len(self.table.rows) if self.table is not None else 0)

    def _choose(self, choice: Choice) -> None:
        self.choice, self.first = choice, 0
        self.post_message(TabTurned())


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


class _Layout:
    """Where the columns are: name first and numbers last; wide screens have the category in words, and bars."""

    def __init__(self, table: TensorTable, width: int) -> None:
        self.table, self.width = table, width
        self.category = _CATEGORY if width >= CATEGORY_FROM else 0
        self.shape = _fitting(table.widest_shape, _SHAPE) + 2
        self.dtype = _fitting(table.widest_dtype, _DTYPE) + 2
        taken = _LETTER + self.shape + self.dtype + self.category + _BYTES + _SHARE + 1
        room = width - taken - (_BAR[0] + 2 if width >= BAR_FROM else 0)
        # Where names have no room, whole columns go.
        self.share = _SHARE
        if room < _LEAST_NAME:
            self.dtype, room = 0, room + self.dtype
        if room < _LEAST_NAME:
            self.shape, room = 0, room + self.shape
        if room < _LEAST_NAME:
            self.share, room = 0, room + self.share
        self.name = max(4, min(max(table.widest_name, 28), room))
        # The bar takes what the names leave.
        self.bar = min(_BAR[1], width - taken - self.name - 2) if width >= BAR_FROM else 0

    def head(self, choice: Choice, look: Look) -> Row:
        def role(column: str) -> str:
            return roles.BRIGHT if choice.column == column else roles.DIM

        line = Line().add(" " * _LETTER, " ").add("name".ljust(self.name), role("name"))
        line.add("  shape".ljust(self.shape)[: self.shape], role("shape"))
        line.add("  dtype".ljust(self.dtype)[: self.dtype], role("dtype"))
        if self.category:
            line.add("  " + "category".ljust(self.category - 2), role("category"))
        line.add("bytes".rjust(_BYTES), role("bytes")).add("share".rjust(self.share)[: self.share], roles.DIM)
        return line.row(self.width)

    def row(self, row: TensorRow, look: Look) -> Row:
        text, ellipsis = look.text, look.glyphs.ellipsis
        letter = text(row.letter)
        line = Line().add(" ", " ").add(letter if len(letter) == 1 else "?", roles.ink(row.category)).add(" ", " ")
        cut = shorten if row.nameless else _middle
        line.add(cut(text(row.name), self.name, ellipsis), roles.DIM if row.nameless else roles.TEXT)
        line.pad(_LETTER + self.name)
        for value, width in ((row.shape, self.shape), (row.dtype, self.dtype)):
            end = line.width + width
            if not width:
                continue
            line.add("  " + clip(text(value), width - 2, ellipsis), roles.DIM).pad(end)
        if self.category:
            end = line.width + self.category
            line.add("  " + clip(text(row.label), self.category - 2, ellipsis), roles.DIM).pad(end)
        line.add(_size(row.size_bytes), roles.TEXT)
        line.add(text(row.share).rjust(self.share)[: self.share], roles.DIM)
        if self.bar and row.size_bytes > 0 and self.table.largest_bytes:
            length = row.size_bytes * self.bar / self.table.largest_bytes
            line.add("  ", " ").add(letter[:1] * int(length + 0.5), roles.fill(row.category))
        return line.row(self.width)

    def sum(self, label: str, size_bytes: int, role: str) -> Row:
        columns = self.name + self.shape + self.dtype + self.category
        line = Line().add(" " * _LETTER, " ").add(shorten(label, columns), role).pad(_LETTER + columns)
        line.add(_size(size_bytes), role)
        part = share(size_bytes, self.table.allocated_bytes).rjust(self.share)[: self.share]
        return line.add(part, role).row(self.width)


def _fitting(widest: int, limits: tuple[int, int]) -> int:
    least, most = limits
    return max(least, min(most, widest))


def _size(size_bytes: int) -> str:
    unit = units.unit_of(size_bytes)
    return f"{units.number(size_bytes, unit):>{_BYTES - 4}} {unit:<3}"


def _middle(text: str, width: int, ellipsis: str) -> str:
    """A name cut in its middle: how it begins and how it ends tells tensors apart."""
    measured = cells(text)
    if len(measured) <= width:
        return text
    front = (width - len(ellipsis)) * 2 // 5
    back = width - len(ellipsis) - front
    if back < 4 or len(measured) != len(text):
        return clip(text, width, ellipsis)
    return text[:front] + ellipsis + text[-back:]
