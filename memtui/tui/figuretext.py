"""Figures as columns of text: number and unit apart, so that numbers stand under each other."""

from __future__ import annotations

from memtui.analysis import units
from memtui.analysis.view import Figure

#: Room for "1,023.9" and a sign before it.
NUMBER_WIDTH = 8
UNIT_WIDTH = 3


def parts(figure: Figure) -> tuple[str, str]:
    """The number, with ≥ before a lower bound, and its unit; – where it is unknown."""
    value = figure.value
    if value is None or figure.kind == "unknown":
        return units.UNKNOWN, ""
    sign = "≥" if figure.kind == "lower_bound" else ""
    if figure.unit == "bytes":
        unit = units.unit_of(value)
        return sign + units.number(value, unit), unit
    if figure.unit == "percent":
        return f"{sign}{value}", "%"
    if figure.unit == "celsius":
        return f"{sign}{value}", "°C"
    if figure.unit == "milliwatts":
        return f"{sign}{value / 1000:.0f}", "W"
    return f"{sign}{value:,}", ""


def column(figure: Figure) -> str:
    """Number and unit in a fixed width, the number right-aligned."""
    number, unit = parts(figure)
    return f"{number:>{NUMBER_WIDTH}} {unit:<{UNIT_WIDTH}}"
