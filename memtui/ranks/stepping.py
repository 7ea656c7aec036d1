"""Ranks that stand still, and ranks for which the others wait."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple, Optional

from memtui.analysis import units
from memtui.analysis.text import place_words

from .finding import Finding
from .policy import RanksPolicy
from .row import RankRow, who

#: How far into a step a phase is; what is between two steps comes before the next one's forward.
_ORDER = {"startup": 0, "between": 0, "evaluation": 0, "checkpoint": 0, "forward": 1, "backward": 2, "optimizer": 3}


class Slowest(NamedTuple):
    """The rank that takes longest, by how much longer than the others' median, and what takes longer."""

    rank: int
    by_ns: int
    what: str  # "a step", "a forward"


def stepping_findings(rows: Sequence[RankRow], policy: RanksPolicy) -> list[Finding]:
    """Of ranks that live."""
    living = [row for row in rows if not row.over and row.step is not None]
    stopped = [row for row in living if row.state == "stopped"]
    if stopped:
        return [_stopped_finding(row, living) for row in stopped]
    silent = [row for row in living if row.age_ns is not None and row.age_ns > policy.silent_ns]
    if silent and len(silent) < len(living):
        return [_silent_finding(row, living) for row in silent]
    stalled = [row for row in living if _stalled(row, policy)]
    if not stalled:
        return []
    if len(stalled) < len(living):
        return [_stalled_finding(row, living) for row in stalled]
    first = min(map(_progress, living))
    behind = [row for row in living if _progress(row) == first]
    if len(behind) == len(living):
        since = units.duration(min(row.since_ns or 0 for row in living))
        place = f"all are {_where(living[0])}"
        return [
            Finding("stalled", "bad", tuple(row.rank for row in living), f"no rank has stepped for {since}: {place}")
        ]
    return [_stalled_finding(row, living) for row in behind]


def slowest(rows: Sequence[RankRow], policy: RanksPolicy) -> Optional[Slowest]:
    """By their steps; where all steps are equally long, for the others wait in backward, by their forwards."""
    living = [row for row in rows if not row.over]
    for what, times in (
        ("a step", {row.rank: row.step_ns for row in living if row.step_ns is not None}),
        ("a forward", {row.rank: row.forward_ns for row in living if row.forward_ns is not None}),
    ):
        if len(times) < 2:
            continue
        rank = max(times, key=lambda each: times[each])
        median = int(statistics.median(value for each, value in times.items() if each != rank))
        by = times[rank] - median
        if by >= policy.slow_ns and by > policy.slow_share * median:
            return Slowest(rank, by, what)
    return None


def _stalled(row: RankRow, policy: RanksPolicy) -> bool:
    if row.since_ns is None or row.phase == "startup" or not row.completed:
        return False
    return row.since_ns > max(policy.stalled_ns, policy.stalled_steps * (row.step_ns or 0))


def _progress(row: RankRow) -> tuple[int, int]:
    return row.completed or 0, _ORDER.get(row.phase, 1)


def _where(row: RankRow) -> str:
    return place_words(row.phase, row.completed or 0)


def _waiting(row: RankRow, living: Sequence[RankRow]) -> str:
    """Where the others wait, in words."""
    others = [other for other in living if other is not row and other.state != "stopped"]
    places = {_where(other) for other in others}
    if len(places) != 1:
        return ""
    return f"; the others wait {places.pop()}" if len(others) > 1 else f"; the other waits {places.pop()}"


def _stopped_finding(row: RankRow, living: Sequence[RankRow]) -> Finding:
    since = units.duration(row.age_ns)
    text = f"{who([row])} is stopped (T) for {since}, {_where(row)}: kill -CONT {row.pid} lets it go on"
    return Finding("stopped", "bad", (row.rank,), text + _waiting(row, living))


def _silent_finding(row: RankRow, living: Sequence[RankRow]) -> Finding:
    text = f"no frame of {who([row])} for {units.duration(row.age_ns)}: it was {_where(row)}"
    return Finding("silent", "bad", (row.rank,), text + _waiting(row, living))


def _stalled_finding(row: RankRow, living: Sequence[RankRow]) -> Finding:
    text = f"{who([row])} stopped stepping: for {units.duration(row.since_ns)} {_where(row)}"
    return Finding("stalled", "bad", (row.rank,), text + _waiting(row, living))
