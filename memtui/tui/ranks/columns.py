"""The columns of a table of ranks: which there is room for, how wide each is, and in which unit its bytes are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from memtui.analysis import units
from memtui.analysis.view import Figure
from memtui.ranks.row import RankRow

#: Cells of the bar, where nothing else gives way any more; and those from which on it shares them with a chart.
LEAST_BAR, CHART_FROM = 8, 22
#: Wide enough for "1,023.9" and a mark before it.
_NUMBER = 8


@dataclass(frozen=True)
class Column:
    """A column of bytes."""

    key: str
    label: str
    figure: Callable[[RankRow], Figure]
    width: int = _NUMBER
    narrow: int = 6
    predicted: bool = False


BYTES = (
    Column("peak", "peak", lambda row: row.peak),
    Column("predicted", "predicted", lambda row: row.predicted, 10, 6, predicted=True),
    Column("headroom", "headroom", lambda row: row.headroom, 9, 8, predicted=True),
)
USED = Column("used", "used", lambda row: row.used, 7)


def unit_of(rows: Sequence[RankRow]) -> str:
    """The unit of the largest that is held: of all columns, that figures can be compared at a glance."""
    values = [column.figure(row).value for row in rows for column in (USED, *BYTES[:2])]
    return units.unit_of(max((abs(value) for value in values if value is not None), default=0))


@dataclass(frozen=True)
class Layout:
    """Cells of each part; 0 leaves it out."""

    device: int
    bar: int
    chart: int
    steps: int
    took: int
    phase: int
    narrow: bool  # shorter names
    used: int
    numbers: tuple[int, ...]  # of each of BYTES


def places(rows: Sequence[RankRow], width: int) -> list[str]:
    """Where each rank is: its device; of several machines the machine too, "box:0", without what all names end in."""
    hosts = list(dict.fromkeys(row.host for row in rows))
    if len(hosts) < 2:
        return [row.device for row in rows]
    short = _short_hosts(hosts)
    found = []
    for row in rows:
        _, colon, index = row.device.partition(":")
        end = f":{index}" if colon else ""
        room = max(4, (14 if width >= 100 else 10) - len(end))
        name = short[row.host]
        # What tells machines apart stands at the end of their names as a rule.
        found.append((name if len(name) <= room else "…" + name[len(name) - room + 1 :]) + end)
    return found


def _short_hosts(hosts: Sequence[str]) -> dict[str, str]:
    """Without the domain that all of them have."""
    parts = [host.split(".") for host in hosts]
    # Addresses and single words have none.
    if any(len(part) < 2 or part[-1].isdigit() for part in parts):
        return {host: host for host in hosts}
    short = [part[0] for part in parts]
    return dict(zip(hosts, short if len(set(short)) == len(hosts) else hosts))


def layout(width: int, rows: Sequence[RankRow], *, chart: bool = True, device: int = 0) -> Layout:
    """How a row of so many cells is divided; with a `chart` beside the bar where both have room.

    `device` is how long what stands there may be; by itself as long as torch's names are.
    """
    longest = max((len(row.device) for row in rows), default=6)
    device = device or min(max(6, longest), 10)
    steps = max(5, max((len(f"{row.step or 0:,}") for row in rows), default=1) + 1)
    narrow = width < 100
    took, phase = (7, 9) if narrow else (9, 11)
    took = max([took, *(len(units.duration(row.step_ns)) + 1 for row in rows)])
    unit = unit_of(rows)
    used, *numbers = (_width(column, rows, unit, narrow) for column in (USED, *BYTES))
    fixed = 6 + 1 + device + used + 6 + 2 + steps + took + 1 + phase + sum(numbers)
    room = width - fixed
    cells = min(40, room * 2 // 5) if chart and room >= CHART_FROM else 0
    return Layout(
        device, max(LEAST_BAR, room - cells - (cells > 0)), cells, steps, took, phase, narrow, used, tuple(numbers)
    )


def _width(column: Column, rows: Sequence[RankRow], unit: str, narrow: bool) -> int:
    """As usual, and more where a figure would touch what stands before it."""
    usual = column.narrow if narrow and column is not USED else column.width
    return max([usual, *(len(number(column.figure(row), unit)) + 1 for row in rows)])


def head_of(column: Column, width: int, *, narrow: bool) -> str:
    """Right-aligned; shorter where there is little room."""
    label = {"predicted": "pred.", "headroom": "room"}.get(column.label, column.label) if narrow else column.label
    return label.rjust(width)


def cell_of(column: Column, row: RankRow, unit: str, width: int) -> str:
    """A figure in the column's unit; – where unknown."""
    figure = column.figure(row)
    text = number(figure, unit)
    return text.rjust(width)


def number(figure: Figure, unit: str) -> str:
    """A figure in a unit, with ≥ before a lower bound; – where unknown."""
    if figure.value is None or figure.kind == "unknown":
        return units.UNKNOWN
    mark = "≥" if figure.kind == "lower_bound" else ""
    return mark + units.number(figure.value, unit)


def percent(row: RankRow) -> Optional[str]:
    """How full its device is."""
    return None if row.percent is None else f"{row.percent:.0f} %"
