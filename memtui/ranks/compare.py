"""Two ranks, category by category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from memtui.analysis.bar import band
from memtui.analysis.view import Figure, Kind
from memtui.wire.frames import CATEGORIES

from .row import RankRow

#: Two ranks are seldom in the same phase at the same instant: what is compared is the most of each category.
NOTE = "the most of each category in the newest looks; now: at this instant, in unlike phases perhaps"


@dataclass(frozen=True)
class Compared:
    """One line: `most` of each of the two, and what they hold `now`; bytes, None where unknown."""

    key: str
    letter: str
    label: str
    most: tuple[Figure, Figure]
    now: tuple[Optional[int], Optional[int]]

    @property
    def difference(self) -> Optional[int]:
        """The second less the first."""
        first, second = (figure.value for figure in self.most)
        return None if first is None or second is None else second - first


def compare(one: RankRow, other: RankRow) -> tuple[Compared, ...]:
    """Categories that either has, then what is beside the tensors, then the peaks and what is left."""
    pair = (one, other)
    lines: list[Compared] = []
    bands = [{each.key: each.figure.value for each in row.bar.bands} for row in pair]
    extra = sorted(key for row in pair for key in row.holding.most if key not in CATEGORIES)
    for key in dict.fromkeys((*CATEGORIES, *extra)):
        most = [row.holding.most.get(key) for row in pair]
        if not any(most):
            continue
        named = band(key, 0)
        figures = (_measured(most[0]), _measured(most[1]))
        lines.append(Compared(key, named.letter, named.label, figures, (bands[0].get(key), bands[1].get(key))))
    for key, label, values in (
        ("reusable_cache", "cache and holes", [row.holding.cache_bytes for row in pair]),
        ("non_torch", "non-torch", [row.holding.non_torch_bytes for row in pair]),
    ):
        if any(value is not None for value in values):
            now = (values[0], values[1])
            lines.append(Compared(key, band(key, 0).letter, label, (_measured(now[0]), _measured(now[1])), now))
    for label, figures in (
        ("peak allocated", (one.peak, other.peak)),
        ("predicted peak of the device", (one.predicted, other.predicted)),
        ("headroom", (one.headroom, other.headroom)),
    ):
        lines.append(Compared("", "", label, figures, (None, None)))
    return tuple(lines)


def partner(rows: Sequence[RankRow], row: RankRow) -> Optional[RankRow]:
    """Whom to compare a rank with where nobody was named: of the others, the one whose peak is in the middle."""
    others = sorted((each for each in rows if each is not row), key=lambda each: (each.peak.value or 0, each.rank))
    return others[len(others) // 2] if others else None


def _measured(value: Optional[int]) -> Figure:
    kind: Kind = "unknown" if value is None else "measured"
    return Figure(value, kind)
