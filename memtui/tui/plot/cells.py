"""Columns of figures to cells: characters and roles, one string of each per column, from top to bottom."""

from __future__ import annotations

from typing import NamedTuple, Optional

from memtui.tui import roles
from memtui.tui.glyphs import Corners, Glyphs

from .track import Column

# Dots of a braille cell from the bottom up, left and right; and all cells of n left and m right dots.
_LEFT = (0x40, 0x04, 0x02, 0x01)
_RIGHT = (0x80, 0x20, 0x10, 0x08)
_AREA = [[chr(0x2800 + sum(_LEFT[:left]) + sum(_RIGHT[:right])) for right in range(5)] for left in range(5)]
_AREA[0][0] = " "


class Cell(NamedTuple):
    """What one column of cells shows: the allocated range of its two halves, and the rows of the lines."""

    left: Column
    right: Column
    reserved: Optional[int]
    reserved_before: Optional[int]
    device: Optional[int]
    device_before: Optional[int]
    held: bool = False  # no sample of its own: what was read last before it


class Ground(NamedTuple):
    """What is behind the figures: a character and a role for each row."""

    text: str
    roles: str


def ground(height: int, rules: list[tuple[int, str, str]]) -> Ground:
    """The background of every column: `rules` are (row, character, role), the later ones in front."""
    text, role = [" "] * height, [" "] * height
    for row, character, style in rules:
        if 0 <= row < height:
            text[row], role[row] = character, style
    return Ground("".join(text), "".join(role))


def row_of(value: int, top: int, height: int) -> int:
    """The row, from the top, in which a line at `value` stands; -1 above the scale."""
    if value > top:
        return -1
    return max(0, min(height - 1, height - 1 - value * height // top))


def dots(value: int, top: int, total: int) -> int:
    """How many of `total` dots a bar of `value` has: none only for nothing at all."""
    count = (value * total * 2 + top) // (2 * top)
    return max(1 if value > 0 else 0, min(total, count))


def column(cell: Cell, behind: Ground, top: int, height: int, glyphs: Glyphs) -> tuple[str, str]:
    """The characters and roles of one column of `height` cells."""
    draw = _outline if cell.held else _area
    text, role = draw(cell, behind, top, height, glyphs)
    if cell.device is not None and cell.device != cell.reserved:
        _line(text, role, cell.device, cell.device_before, glyphs.device, roles.DEVICE)
    if cell.reserved is not None:
        _line(text, role, cell.reserved, cell.reserved_before, glyphs.reserved, roles.RESERVED)
    return "".join(text), "".join(role)


def _area(cell: Cell, behind: Ground, top: int, height: int, glyphs: Glyphs) -> tuple[list[str], list[str]]:
    text, role = list(behind.text), list(behind.roles)
    per_cell = 4 if glyphs.braille else 1
    total = height * per_cell
    left_low, left_high = _dots(cell.left, top, total)
    right_low, right_high = _dots(cell.right, top, total)
    if not glyphs.braille:
        low, high = min(left_low, right_low), max(left_high, right_high)
        if cell.left is None or cell.right is None:
            low = max(left_low, right_low)
        for place in range(high):
            text[height - 1 - place] = glyphs.area if place < low else glyphs.envelope
            role[height - 1 - place] = roles.ALLOCATED if place < low else roles.ENVELOPE
        return text, role
    solid = min(left_low, right_low) // 4
    highest = max(left_high, right_high)
    reach = (highest + 3) // 4
    if solid:
        text[height - solid :] = "⣿" * solid
        role[height - solid :] = roles.ALLOCATED * solid
    crest = (highest - 1) // 4
    for place in range(solid, reach):
        base = place * 4
        left = min(4, max(0, left_high - base))
        right = min(4, max(0, right_high - base))
        spread = left > min(4, max(0, left_low - base)) or right > min(4, max(0, right_low - base))
        text[height - 1 - place] = _AREA[left][right]
        role[height - 1 - place] = roles.ENVELOPE if spread or place == crest else roles.ALLOCATED
    if 0 <= crest < solid:  # the top ends exactly with a cell
        role[height - 1 - crest] = roles.ENVELOPE
    return text, role


def _outline(cell: Cell, behind: Ground, top: int, height: int, glyphs: Glyphs) -> tuple[list[str], list[str]]:
    """Only the height of the area."""
    text, role = list(behind.text), list(behind.roles)
    per_cell = 4 if glyphs.braille else 1
    high = max(_dots(cell.left, top, height * per_cell)[1], _dots(cell.right, top, height * per_cell)[1])
    if high:
        row, place = divmod(high - 1, per_cell)
        text[height - 1 - row] = chr(0x2800 + _LEFT[place] + _RIGHT[place]) if glyphs.braille else glyphs.held
        role[height - 1 - row] = roles.ALLOCATED
    return text, role


def _dots(column_: Column, top: int, total: int) -> tuple[int, int]:
    if column_ is None:
        return 0, 0
    return dots(column_[0], top, total), dots(column_[1], top, total)


def _line(text: list[str], role: list[str], row: int, before: Optional[int], corners: Corners, style: str) -> None:
    """Writes a line at `row` that was at `before` in the column to the left; rows below 0 are out of sight."""
    height = len(text)
    if before is None or before == row:
        pieces = [(row, corners.across)]
    elif row < before:
        between = [(place, corners.upright) for place in range(row + 1, before)]
        pieces = [(before, corners.up), *between, (row, corners.up_end)]
    else:
        between = [(place, corners.upright) for place in range(before + 1, row)]
        pieces = [(before, corners.down), *between, (row, corners.down_end)]
    for place, character in pieces:
        if 0 <= place < height:
            text[place], role[place] = character, style
