"""Lines of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

_WIDTHS = (10, 52, 44, 26)


class Skipped(Exception):
    """A benchmark that cannot run here; the message says why."""


@dataclass(frozen=True)
class Line:
    """One figure; without a bar it is there to be known."""

    what: str
    measured: str
    bar: str = ""
    met: Optional[bool] = None


def at_most(what: str, value: float, bar: float, unit: str, digits: int = 3, note: str = "") -> Line:
    """A figure that must not be higher than its bar."""
    return Line(what, f"{value:.{digits}f} {unit}{note}", f"≤ {bar:g} {unit}", value <= bar)


def heading() -> str:
    """The table's first two lines."""
    names = ("bench", "what", "measured", "bar")
    return "  ".join(f"{name:{width}}" for name, width in zip(names, _WIDTHS)) + "\n" + "-" * (sum(_WIDTHS) + 14)


def render(bench: str, line: Line) -> str:
    """One line of the table."""
    verdict = {True: "met", False: "NOT MET", None: ""}[line.met]
    cells = zip((bench, line.what, line.measured, line.bar), _WIDTHS)
    return "  ".join([*(f"{cell:{width}}" for cell, width in cells), verdict]).rstrip()
