"""What one cell of the emulated screen holds, and how a row of cells becomes runs of text."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from rich.color import Color
from rich.style import Style

#: Colours are numbers: the terminal's own default, 0 to 255 of the palette, or RGB with this bit set.
DEFAULT_COLOUR = -1
TRUE_COLOUR = 1 << 24


class Attribute(enum.IntFlag):
    """What SGR can do to a character besides colour. Blinking is left out on purpose."""

    BOLD = 1
    DIM = 2
    ITALIC = 4
    UNDERLINE = 8
    REVERSE = 16
    CONCEAL = 32
    STRIKE = 64


class Pen(NamedTuple):
    """Colours and attributes of what is written next."""

    foreground: int = DEFAULT_COLOUR
    background: int = DEFAULT_COLOUR
    attributes: int = 0


class Cell(NamedTuple):
    """One cell. `width` is 1; 2 for the left half of a wide character; 0, with no text, for its right half.

    The field `data` is what pyte's screen expects a character to have.
    """

    data: str
    pen: Pen
    width: int = 1


PLAIN = Pen()
BLANK = Cell(" ", PLAIN)

#: A row as history keeps it: text and pen of every run, trailing blanks left out.
Runs = tuple[tuple[str, Pen], ...]


def row_runs(row: Mapping[int, Cell], columns: int) -> Runs:
    """The runs of equal pen in the first `columns` cells of a row; halves of wide characters become spaces."""
    if not row:
        return ()
    runs: list[tuple[str, Pen]] = []
    pieces: list[str] = []
    pen = PLAIN
    end = min(max(row) + 1, columns)
    halves = 0  # cells that the wide character before still covers
    for x in range(end):
        data, cell_pen, width = row.get(x, BLANK)
        if halves:
            halves = 0
            if width == 0:
                continue
            # The right half was overwritten, so the left one is no character any more.
            pieces[-1] = " "
        if width != 1:
            if width == 2 and x + 1 < columns and row.get(x + 1, BLANK).width == 0:
                halves = 1
            else:
                data = " "
        if cell_pen is not pen and cell_pen != pen:
            if pieces:
                runs.append(("".join(pieces), pen))
            pieces = []
            pen = cell_pen
        pieces.append(data)
    text = "".join(pieces)
    if pen == PLAIN:
        text = text.rstrip(" ")
    if text:
        runs.append((text, pen))
    return tuple(runs)


def runs_text(runs: Iterable[tuple[str, Pen]]) -> str:
    """The text alone."""
    return "".join(text for text, _ in runs)


@lru_cache(maxsize=2048)
def pen_style(pen: Pen) -> Style:
    """The rich style of a pen; palette colours stay palette colours, so that a theme can map them."""
    attributes = pen.attributes
    return Style(
        color=_colour(pen.foreground),
        bgcolor=_colour(pen.background),
        bold=True if attributes & Attribute.BOLD else None,
        dim=True if attributes & Attribute.DIM else None,
        italic=True if attributes & Attribute.ITALIC else None,
        underline=True if attributes & Attribute.UNDERLINE else None,
        reverse=True if attributes & Attribute.REVERSE else None,
        conceal=True if attributes & Attribute.CONCEAL else None,
        strike=True if attributes & Attribute.STRIKE else None,
    )


def _colour(number: int) -> Color | None:
    if number == DEFAULT_COLOUR:
        return None
    if number & TRUE_COLOUR:
        return Color.from_rgb(number >> 16 & 0xFF, number >> 8 & 0xFF, number & 0xFF)
    return Color.from_ansi(number)
