"""Stacked columns as cells: what lies on what, to an eighth of a cell where there are colours."""

from __future__ import annotations

from collections.abc import Sequence

from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Row

from .cells import dots

_EIGHTHS = " ▁▂▃▄▅▆▇█"

#: In colours the letter of a tenant stands in a cell of so many, so that it is found and does not cover the colour.
_LETTER_EVERY, _LETTER_SHIFT = 12, 5


def stacked(
    columns: Sequence[Sequence[int]], tenants: Sequence[tuple[str, str]], height: int, top: int, look: Look
) -> list[Row]:
    """Rows from top to bottom of columns of bytes by tenant, the first tenant at the bottom; `top` bytes are `height`.

    `tenants` are (key, letter). Negative bytes have no place: what lies on them ends at the column's sum.
    """
    fine = look.glyphs.braille and not look.colors.mono
    parts = 8 if fine else 1
    drawn: dict[tuple[int, ...], list[tuple[str, str]]] = {}
    grid: list[list[tuple[str, str]]] = []
    for column in columns:
        key = tuple(column)
        cells = drawn.get(key)
        if cells is None:
            ends = _ends(column, height * parts, top)
            cells = drawn[key] = [_cell(ends, tenants, place, parts) for place in range(height)]
        grid.append(cells)
    rows = []
    for place in reversed(range(height)):
        text, role = [], []
        for x, cells in enumerate(grid):
            character, style = cells[place]
            if fine and len(style) > 1:  # a whole cell of one tenant
                style, letter = style[0], character
                shown = (x + _LETTER_SHIFT * place) % _LETTER_EVERY == 0
                character = letter if shown else " "
            text.append(character)
            role.append(style[0])
        rows.append(Row("".join(text), "".join(role)))
    return rows


def _ends(column: Sequence[int], total: int, top: int) -> list[int]:
    """Where each tenant ends, in parts of cells from the bottom."""
    most = dots(max(0, sum(column)), top, total)
    ends, height = [], 0
    for value in column:
        height += max(0, value)
        ends.append(min(most, (height * total * 2 + top) // (2 * top)))
    if most and max(ends) < most:  # too little to be seen, and seen nevertheless
        largest = max(range(len(column)), key=lambda place: column[place])
        ends[largest:] = [most] * (len(ends) - largest)
    return ends


def _cell(ends: list[int], tenants: Sequence[tuple[str, str]], place: int, parts: int) -> tuple[str, str]:
    """The character and role of one cell; a role of two characters is a whole cell's, whose letter need not show."""
    first, last = place * parts, (place + 1) * parts
    pieces: list[list[int]] = []  # [tenant, parts of this cell], from the bottom
    at = first
    for tenant, end in enumerate(ends):
        if end > at:
            pieces.append([tenant, min(end, last) - at])
            at = min(end, last)
        if at == last:
            break
    if at < last:
        pieces.append([-1, last - at])
    while len(pieces) > 2:  # two can be drawn: the smallest goes to its larger neighbour
        smallest = min(range(len(pieces)), key=lambda index: pieces[index][1])
        near = [index for index in (smallest - 1, smallest + 1) if 0 <= index < len(pieces)]
        pieces[max(near, key=lambda index: pieces[index][1])][1] += pieces[smallest][1]
        del pieces[smallest]
    lower = pieces[0]
    if len(pieces) == 1:
        if lower[0] < 0:
            return " ", " "
        key, letter = tenants[lower[0]]
        return letter, roles.fill(key) * 2
    upper = pieces[1]
    return _EIGHTHS[lower[1]], roles.pair(tenants[lower[0]][0], tenants[upper[0]][0] if upper[0] >= 0 else "")
