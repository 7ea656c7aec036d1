"""Lines of cells as two strings, the characters and their roles: cheap to build, to compare and to slice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len

#: Stands after a character that is two cells wide, so that a place in the string is a place on the screen.
WIDE = "\0"

#: Unchanged cells between two changed ones are written again rather than jumped over if there are no more than these:
#: a jump costs about eight bytes and often a change of colour.
GAP = 5


class Row(NamedTuple):
    """One line: `text` and `roles` are equally long; each role is one character of `roles.Role`."""

    text: str
    roles: str


class Span(NamedTuple):
    """Cells [start, end) of one line."""

    y: int
    start: int
    end: int


EMPTY = Row("", "")


class Line:
    """Builds a row from left to right."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._roles: list[str] = []
        self.width = 0

    def add(self, text: str, role: str) -> Line:
        """Appends text of one role; any text is fit for it, control characters become spaces."""
        text = cells(text)
        self._text.append(text)
        self._roles.append(role * len(text))
        self.width += len(text)
        return self

    def add_cells(self, text: str, roles: str) -> Line:
        """Appends cells with a role each; the text is one character a cell already."""
        self._text.append(text)
        self._roles.append(roles)
        self.width += len(text)
        return self

    def pad(self, width: int, role: str = " ") -> Line:
        """Appends spaces up to `width` cells."""
        if self.width < width:
            self.add(" " * (width - self.width), role)
        return self

    def row(self, width: int) -> Row:
        """The row, cut or filled to `width` cells."""
        text, roles = "".join(self._text), "".join(self._roles)
        return fit(Row(text, roles), width)


def cells(text: str) -> str:
    """Text with one character per cell: wide ones are followed by WIDE, those without width are left out."""
    return text if text.isascii() and text.isprintable() else _measured(text)


@lru_cache(4096)
def _measured(text: str) -> str:
    result = []
    for character in text:
        if character == WIDE:
            continue
        width = cell_len(character) if character.isprintable() or character == "\ufe0e" else -1
        result.append(" " if width < 0 else character + WIDE if width == 2 else character if width else "")
    return "".join(result)


def fit(row: Row, width: int) -> Row:
    """A row cut or filled to `width` cells; half a wide character becomes a space."""
    text, roles = row
    missing = width - len(text)
    if missing > 0:
        return Row(text + " " * missing, roles + " " * missing)
    if missing < 0:
        if text[width : width + 1] == WIDE and width:
            text = text[: width - 1] + " "
        return Row(text[:width], roles[:width])
    return row


def clip(text: str, width: int, ellipsis: str = "…") -> str:
    """Text of at most `width` cells, its end replaced by an ellipsis where it is longer."""
    measured = cells(text)
    if len(measured) <= width:
        return text
    if width <= len(ellipsis):
        return ellipsis[: max(0, width)]
    kept = measured[: width - len(ellipsis)]
    if measured[len(kept)] == WIDE:
        kept = kept[:-1]
    return kept.replace(WIDE, "").rstrip() + ellipsis


@lru_cache(512)
def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """A sentence of at most `width` cells without what there is no room for: whole parts from its end, else words.

    Parts end at a dot, a semicolon, a colon, a bracket or before "in". Less than half the room is too little of them:
    then it ends with the last whole word, and an ellipsis; never with a number that has lost its unit.
    """
    if len(cells(text)) <= width:
        return text
    parts = [end for end in _part_ends(text) if len(cells(text[:end])) <= width]
    if parts and 2 * len(cells(text[: parts[-1]])) >= width:
        return text[: parts[-1]]
    kept = _words(text, width - len(ellipsis))
    while _BARE_NUMBER.search(kept):
        kept = _words(kept, len(cells(kept)) - 1)
    return kept + ellipsis if kept else text[: parts[-1]] if parts else clip(text, width, ellipsis)


def _part_ends(text: str) -> Iterator[int]:
    begun = 0
    for found in _PART_ENDS.finditer(text):
        # One or two words before a colon are only what a list is called.
        if found.group() != ": " or len(text[begun : found.start()].split()) > 2:
            yield found.start()
        begun = found.end()


def words(text: str, width: int, ellipsis: str = "…") -> str:
    """Text of at most `width` cells that ends with a whole word; only a first word that is too wide is cut."""
    if len(cells(text)) <= width:
        return text
    kept = _words(text, width - len(ellipsis))
    return kept + ellipsis if kept else clip(text, width, ellipsis)


def _words(text: str, width: int) -> str:
    """The first whole words that fit, without the marks after them."""
    ends = [place.start() for place in re.finditer(r"\s+|$", text)]
    fitting = [end for end in ends if len(cells(text[:end].rstrip(_MARKS))) <= width]
    return text[: fitting[-1]].rstrip(_MARKS) if fitting else ""


_PART_ENDS = re.compile(r" [·|] |; |: | \(| in | ← | <- ")
_MARKS = " ·|;:,(-–"
#: Ends with a number, or the mark of a bound, whose unit is missing.
_BARE_NUMBER = re.compile(r"(^|\s)[≥≤>=<+±−-]*([\d.,]+|[≥≤>=<+±−-])$")


def overlay(row: Row, start: int, text: str, role: str) -> Row:
    """A row with `text` written over it from cell `start` on; what does not fit is cut off."""
    text = cells(text)[: max(0, len(row.text) - start)]
    if start < 0 or not text:
        return row
    end = start + len(text)
    return Row(row.text[:start] + text + row.text[end:], row.roles[:start] + role * len(text) + row.roles[end:])


def changes(y: int, before: Row, after: Row) -> list[Span]:
    """The cells of line `y` in which two equally wide rows differ, near ones taken together."""
    if before == after:
        return []
    old_text, old_roles = before
    text, roles = after
    if len(old_text) != len(text):
        return [Span(y, 0, len(text))]
    spans: list[Span] = []
    start = end = -1
    for place, pair in enumerate(zip(old_text, text, old_roles, roles)):
        if pair[0] == pair[1] and pair[2] == pair[3]:
            continue
        if start < 0:
            start = place
        elif place - end > GAP:
            spans.append(Span(y, start, end))
            start = place
        end = place + 1
    if start >= 0:
        spans.append(Span(y, start, end))
    if WIDE in text:
        return [_whole_characters(span, text) for span in spans]
    return spans


def _whole_characters(span: Span, text: str) -> Span:
    y, start, end = span
    if start and text[start] == WIDE:
        start -= 1
    if text[end : end + 1] == WIDE:
        end += 1
    return Span(y, start, end)


def runs(row: Row, start: int, end: int) -> list[tuple[str, str]]:
    """(text, role) of each run of one role in cells [start, end)."""
    text, roles = row.text, row.roles
    result = []
    place = start
    while place < end:
        role = roles[place]
        stop = place + 1
        while stop < end and roles[stop] == role:
            stop += 1
        result.append((text[place:stop].replace(WIDE, ""), role))
        place = stop
    return result
