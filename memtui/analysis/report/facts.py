"""What a report says, as frozen values: the renderings only write it down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from memtui.analysis import units
from memtui.analysis.view import Figure, Kind


@dataclass(frozen=True)
class Cell:
    """A figure of a row; `key` is its name in the JSON."""

    key: str
    figure: Figure


@dataclass(frozen=True)
class Row:
    """One answer: its figures, and in words where it is from, or why it is not known and what would tell it."""

    key: str
    label: str
    cells: tuple[Cell, ...] = ()
    text: str = ""

    def figure(self, key: str) -> Optional[Figure]:
        """The figure of that name; None where the row has none."""
        return next((cell.figure for cell in self.cells if cell.key == key), None)


@dataclass(frozen=True)
class Section:
    """Answers that belong together. `columns` are (key, heading) of the figures that have a place of their own.

    Figures of other keys are in the JSON, and in the rows' texts. `said` is how its figures were had where the title or
    a heading says so already.
    """

    key: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[tuple[str, str], ...] = ()
    said: tuple[Kind, ...] = ()


@dataclass(frozen=True)
class DeviceReport:
    """One device of the process."""

    device: str  # cuda:0
    name: str
    total_bytes: Optional[int]
    short: tuple[str, ...]  # the answer in a few sentences
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Report:
    """The page. `notices` say what the figures themselves suffer from."""

    program: str
    pid: int
    host: str
    torch: str
    ended: str  # "exited with status 0"
    exception: str  # what it ended by: "ValueError: no such file"; empty where it is not known
    exit_status: Optional[int]
    steps: Optional[int]  # completed while it was watched
    late: bool  # it had run before
    watched_ns: Optional[int]
    model: Section
    devices: tuple[DeviceReport, ...]
    notices: tuple[str, ...] = ()
    rank: Optional[int] = None  # which one it is of, where there were several
    ranks: tuple[str, ...] = ()  # which one and why, and how each other one ended


def cell(key: str, value: Optional[int], kind: Kind = "measured", unit: str = "bytes") -> Cell:
    """A figure; unknown where it is None, whatever it would have been."""
    return Cell(key, Figure(value, "unknown" if value is None else kind, unit))


def bound(exact: bool) -> Kind:
    """How a peak was had that is exact, or at least so much."""
    return "measured" if exact else "lower_bound"


def figure_text(figure: Optional[Figure]) -> str:
    """A figure as it is printed: "≥ 3.1 GiB", "25,175,040", "–"; empty where a row has none."""
    if figure is None:
        return ""
    if figure.value is None:
        return units.UNKNOWN
    text = units.size(figure.value) if figure.unit == "bytes" else f"{figure.value:,}"
    if figure.unit == "percent":
        text += " %"
    return f"≥ {text}" if figure.kind == "lower_bound" else text


def how_text(row: Row, section: Section) -> str:
    """How the shown figures of a row were had, where that is not by measuring; "≥" and "–" speak for themselves."""
    kinds = {figure.kind for key, _ in section.columns if (figure := row.figure(key)) is not None}
    return ", ".join(kind for kind in ("derived", "predicted") if kind in kinds.difference(section.said))
