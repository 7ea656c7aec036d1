"""SGR: what `ESC [ ... m` does to the pen."""

from __future__ import annotations

from functools import lru_cache

from memtui.tui.terminal.cells import DEFAULT_COLOUR, PLAIN, TRUE_COLOUR, Attribute, Pen

_SET = {
    1: Attribute.BOLD,
    2: Attribute.DIM,
    3: Attribute.ITALIC,
    4: Attribute.UNDERLINE,
    7: Attribute.REVERSE,
    8: Attribute.CONCEAL,
    9: Attribute.STRIKE,
    21: Attribute.UNDERLINE,  # doubly
}

_CLEAR = {
    22: Attribute.BOLD | Attribute.DIM,
    23: Attribute.ITALIC,
    24: Attribute.UNDERLINE,
    27: Attribute.REVERSE,
    28: Attribute.CONCEAL,
    29: Attribute.STRIKE,
}

_FOREGROUND = {39: DEFAULT_COLOUR, **{30 + n: n for n in range(8)}, **{90 + n: 8 + n for n in range(8)}}
_BACKGROUND = {code + 10: colour for code, colour in _FOREGROUND.items()}

_EXTENDED_FOREGROUND, _EXTENDED_BACKGROUND, _EXTENDED_UNDERLINE = 38, 48, 58


@lru_cache(maxsize=4096)
def apply(pen: Pen, parameters: str) -> Pen:
    """The pen after the parameters of one SGR sequence, as they stood between `[` and `m`."""
    fields = parameters.split(";")
    position = 0
    while position < len(fields):
        head, *rest = fields[position].split(":")
        code = _number(head)
        position += 1
        if code in (_EXTENDED_FOREGROUND, _EXTENDED_BACKGROUND, _EXTENDED_UNDERLINE):
            if rest:
                colour, _ = _extended([_number(field) for field in _without_colour_space(rest)])
            else:
                colour, used = _extended([_number(field) for field in fields[position : position + 4]])
                position += used
            if colour is not None and code == _EXTENDED_FOREGROUND:
                pen = pen._replace(foreground=colour)
            elif colour is not None and code == _EXTENDED_BACKGROUND:
                pen = pen._replace(background=colour)
        elif code == 4 and rest and _number(rest[0]) == 0:  # 4:0 is no underline, 4:3 a curly one
            pen = pen._replace(attributes=pen.attributes & ~Attribute.UNDERLINE)
        else:
            pen = _simple(pen, code)
    return pen


def _simple(pen: Pen, code: int) -> Pen:
    if code == 0:
        return PLAIN
    if code in _SET:
        return pen._replace(attributes=int(pen.attributes | _SET[code]))
    if code in _CLEAR:
        return pen._replace(attributes=int(pen.attributes & ~_CLEAR[code]))
    if code in _FOREGROUND:
        return pen._replace(foreground=_FOREGROUND[code])
    if code in _BACKGROUND:
        return pen._replace(background=_BACKGROUND[code])
    return pen


def _extended(numbers: list[int]) -> tuple[int | None, int]:
    """A colour after 38 or 48 and how many fields it took; None where it is out of range or cut short."""
    kind = numbers[0] if numbers else -1
    if kind == 5:
        index = numbers[1] if len(numbers) > 1 else -1
        return (index if 0 <= index < 256 else None), 2
    if kind == 2:
        channels = numbers[1:4]
        if len(channels) < 3 or not all(0 <= channel < 256 for channel in channels):
            return None, 4
        return TRUE_COLOUR | channels[0] << 16 | channels[1] << 8 | channels[2], 4
    return None, 1


def _without_colour_space(fields: list[str]) -> list[str]:
    # 2:SPACE:r:g:b is the standard's form, 2:r:g:b the one often seen.
    return [fields[0], *fields[2:5]] if fields[0] == "2" and len(fields) > 4 else fields


def _number(field: str) -> int:
    return int(field) if field.isascii() and field.isdigit() and len(field) <= 5 else 0
