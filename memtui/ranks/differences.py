"""Ranks whose memory differs: parts of a model told from faults, and why, as far as their categories say."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Optional

from memtui.analysis import units

from .finding import Finding
from .policy import RanksPolicy
from .row import RankRow
from .words import kinds, ranks

#: Parts of a model have these sizes; what follows the batch does not tell stages apart.
_COMPARED = ("parameters", "buffers", "gradients", "optimizer_state", "activations", "inputs", "communication")
#: Inputs that differ by less than this are the same batch.
_SAME_BATCH = 1.05


def difference_findings(rows: Sequence[RankRow], policy: RanksPolicy) -> list[Finding]:
    """Of ranks that live and have been looked at."""
    known = [row for row in rows if not row.over and row.peak.value and row.holding.looks and row.completed]
    groups = stages(known, policy)
    found: list[Finding] = []
    if len(groups) > 1 and _are_stages(groups):
        found.append(_stages_finding(groups))
    elif len(groups) > 1:
        found += _odd_models(groups)
    for group in groups:
        found += _unlike(group, policy)
    return found


def stages(rows: Sequence[RankRow], policy: RanksPolicy) -> list[list[RankRow]]:
    """Ranks that hold the same part of the model together, in the order of their first rank."""
    groups: list[list[RankRow]] = []
    for row in rows:
        for group in groups:
            if _same_part(group[0], row, policy):
                group.append(row)
                break
        else:
            groups.append([row])
    return groups


def _same_part(one: RankRow, other: RankRow, policy: RanksPolicy) -> bool:
    first, second = one.holding.parameter_bytes, other.holding.parameter_bytes
    if first is None or second is None:
        return True
    return abs(first - second) <= policy.same_part_share * max(first, second)


def _are_stages(groups: Sequence[Sequence[RankRow]]) -> bool:
    """Whether the ranks hold different numbers of parameters, and not one the same model in another form.

    A single rank that is unlike all others, more than two of which are alike, is no stage.
    """
    counts = {group[0].holding.parameters for group in groups}
    if len(counts) < len(groups):
        return False
    sizes = sorted(map(len, groups))
    return not (len(sizes) == 2 and sizes[0] == 1 and sizes[1] > 2)


def _stages_finding(groups: Sequence[Sequence[RankRow]]) -> Finding:
    parts = [
        f"{ranks(row.rank for row in group)} {units.size(group[0].holding.parameter_bytes)}" for group in groups[:4]
    ]
    if len(groups) > 4:
        parts.append(f"{len(groups) - 4} more")
    numbers = tuple(row.rank for group in groups for row in group)
    text = f"ranks hold different parts of the model, as pipeline stages do: parameters {', '.join(parts)}"
    return Finding("stages", "unknown", numbers, text)


def _odd_models(groups: Sequence[Sequence[RankRow]]) -> list[Finding]:
    usual = max(groups, key=len)[0]
    found = []
    for group in groups:
        row = group[0]
        if row is usual:
            continue
        own, others = row.holding, usual.holding
        text = f"parameters {units.size(own.parameter_bytes)} against {units.size(others.parameter_bytes)}"
        if own.dtypes != others.dtypes:
            text += f"; {', '.join(own.dtypes) or 'no dtype'} against {', '.join(others.dtypes) or 'no dtype'}"
        elif own.parameters != others.parameters:
            text += f"; {own.parameters:,} of them against {others.parameters or 0:,}"
        numbers = tuple(each.rank for each in group)
        verb = "holds" if len(numbers) == 1 else "hold"
        found.append(Finding("model", "warning", numbers, f"{ranks(numbers)} {verb} another model: {text}"))
    return found


def _unlike(group: Sequence[RankRow], policy: RanksPolicy) -> list[Finding]:
    """Ranks of one part whose peak is not the others'; of two, the larger."""
    if len(group) < 2:
        return []
    found = []
    for row in group:
        others = [other for other in group if other is not row]
        median = int(statistics.median(_peak(other) for other in others))
        more = _peak(row) - median
        if abs(more) < max(policy.unlike_bytes, policy.unlike_share * median) or (len(group) == 2 and more < 0):
            continue
        # Where half of them are unlike the other half, the ones that hold more are told.
        if more < 0 and sum(_peak(other) < _peak(row) * (1 + policy.unlike_share) for other in group) * 2 >= len(group):
            continue
        found.append(_unlike_finding(row, others, more))
    return _together(found)


def _unlike_finding(row: RankRow, others: Sequence[RankRow], more: int) -> Finding:
    batch = _batch(row, others)
    category, by = _main_difference(row, others, [key for key in _COMPARED if key != "inputs" or not batch])
    text = f"{units.size(abs(more))} {'more' if more > 0 else 'less'} than the others at its peak"
    if category:
        text += f": {kinds(category)} {units.size(row.holding.of(category))} against {units.size(by)}"
    key = "batches" if batch else "memory"
    return Finding(key, "warning", (row.rank,), f"{ranks([row.rank])} holds {text}{batch}")


def _main_difference(row: RankRow, others: Sequence[RankRow], compared: Sequence[str]) -> tuple[str, int]:
    """The category that differs most, and what the others have of it; "" where none says anything."""
    best, most, usual = "", 0, 0
    for category in compared:
        median = int(statistics.median(other.holding.of(category) for other in others))
        by = abs(row.holding.of(category) - median)
        if by > most:
            best, most, usual = category, by, median
    return best, usual


def _batch(row: RankRow, others: Sequence[RankRow]) -> str:
    """Whether its batches are of another size than the others', in words."""
    own = row.holding.of("inputs")
    usual = int(statistics.median(other.holding.of("inputs") for other in others))
    if not own or not usual:
        return ""
    if own > _SAME_BATCH * usual or usual > _SAME_BATCH * own:
        which = "larger" if own > usual else "smaller"
        return f"; its batches are {which} (inputs {units.size(own)} against {units.size(usual)})"
    return ""


def _together(found: list[Finding]) -> list[Finding]:
    """At most three of a kind, the largest ranks' numbers in one line where there are more."""
    if len(found) <= 3:
        return found
    numbers = tuple(number for each in found for number in each.ranks)
    return [Finding("memory", "warning", numbers, f"{ranks(numbers)} hold unlike much at their peaks; c compares two")]


def _peak(row: RankRow) -> int:
    return row.peak.value or 0


def skew_bytes(rows: Sequence[RankRow]) -> Optional[int]:
    """Between the highest peak and the lowest of those that live; None of fewer than two."""
    peaks = [_peak(row) for row in rows if not row.over and row.peak.value is not None]
    return max(peaks) - min(peaks) if len(peaks) > 1 else None
