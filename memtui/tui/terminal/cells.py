"""What one cell of the emulated screen holds, and how a row of cells becomes runs of text."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence
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
    """The runs of equal pen in the first `columns` cells of a row; halves of wide characters become spaces.

    Every line drawn or scrolled passes through here, so it works on columns of values and not cell by cell: 10 µs for
    80 cells of one pen.
    """
    if not row:
        return ()
    end = min(max(row) + 1, columns)
    texts: Sequence[str]
    texts, pens, widths = zip(*map(row.get, range(end), itertools.repeat(BLANK)))
    if widths.count(1) != end:
        texts = _without_halves(texts, widths)
    runs: list[tuple[str, Pen]] = []
    begin = 0
    if pens.count(pens[0]) == end:
        runs.append(("".join(texts), pens[0]))
    else:
        for pen, group in itertools.groupby(pens):
            stop = begin + sum(1 for _ in group)
            runs.append(("".join(texts[begin:stop]), pen))
            begin = stop
    text, pen = runs[-1]
    if pen == PLAIN:
        runs[-1:] = [(text.rstrip(" "), pen)] if not text.isspace() else []
    return tuple(runs)


def _without_halves(texts: Sequence[str], widths: Sequence[int]) -> list[str]:
    whole = list(texts)
    for x, width in enumerate(widths):
        if width == 2 and (x + 1 == len(widths) or widths[x + 1] != 0):
            whole[x] = " "  # its right half was overwritten, or is beyond the edge
        elif width == 0 and (x == 0 or widths[x - 1] != 2):
            whole[x] = " "  # its left half was
    return whole


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
