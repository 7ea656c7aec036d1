"""Ranks whose memory differs: parts of a model told from faults, and why, as far as their categories say."""

from __future__ import annotations

import bisect
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
#: A group with so many times fewer ranks than the largest one is no part of the model of its own.
_FEW = 8
_MOST_GROUPS = 256
#: More ranks than these are told in one line.
_BY_NAME = 3
#: So many ranks on each side are a rank's neighbours.
_NEAR = 4
#: Inputs that differ by less than this are the same batch.
_SAME_BATCH = 1.05


def difference_findings(rows: Sequence[RankRow], policy: RanksPolicy) -> list[Finding]:
    """Of ranks that live and have been looked at."""
    known = [row for row in rows if not row.over and row.peak.value and row.holding.looks and row.completed]
    groups = stages(known, policy)
    found: list[Finding] = []
    parts, strays = whole_stages(groups)
    if len(parts) > 1 and _are_stages(parts):
        found.append(_stages_finding(parts))
        found += _of_no_stage(strays, parts)
        groups = parts
    elif len(groups) > 1:
        usual = max(groups, key=len)
        found += _odd_models([group for group in groups if group is not usual], usual)
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
            # No training has so many stages, and the time that this takes grows with their number.
            if len(groups) < _MOST_GROUPS:
                groups.append([row])
            else:
                groups[-1].append(row)
    return groups


def whole_stages(groups: Sequence[list[RankRow]]) -> tuple[list[list[RankRow]], list[RankRow]]:
    """The groups that can be stages, and the ranks of none: a few that are like no large group, and one in the midst
    of another stage's ranks, whose amount it has no more than by chance.
    """
    most = max(map(len, groups), default=0)
    parts = [group for group in groups if len(group) * _FEW >= most]
    strays = [row for group in groups if len(group) * _FEW < most for row in group]
    if len(parts) < 2:
        return parts, strays
    ordered = sorted((row.rank, place) for place, part in enumerate(parts) for row in part)
    lost = set()
    for number, (rank, place) in enumerate(ordered):
        before, after = ordered[max(0, number - _NEAR) : number], ordered[number + 1 : number + 1 + _NEAR]
        around = {beside for _, beside in (*before, *after)}
        if before and after and len(around) == 1 and place not in around and len(parts[around.pop()]) > _NEAR:
            lost.add(rank)
    strays += [row for part in parts for row in part if row.rank in lost]
    kept = [[row for row in part if row.rank not in lost] for part in parts]
    return [part for part in kept if part], sorted(strays, key=lambda row: row.rank)


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
    if len(counts) < len(groups) and counts != {None}:
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


def _odd_models(odd: Sequence[Sequence[RankRow]], usual: Sequence[RankRow]) -> list[Finding]:
    if len(odd) > _BY_NAME:
        numbers = tuple(row.rank for group in odd for row in group)
        sizes = [group[0].holding.parameter_bytes or 0 for group in odd]
        text = f"parameters {units.size(min(sizes))} to {units.size(max(sizes))}"
        text += f" against {units.size(usual[0].holding.parameter_bytes)}"
        return [Finding("model", "warning", numbers, f"{ranks(numbers)} hold other models: {text}")]
    found = []
    for group in odd:
        own, others = group[0].holding, usual[0].holding
        text = f"parameters {units.size(own.parameter_bytes)} against {units.size(others.parameter_bytes)}"
        if own.dtypes != others.dtypes:
            text += f"; {', '.join(own.dtypes) or 'no dtype'} against {', '.join(others.dtypes) or 'no dtype'}"
        elif own.parameters is not None and own.parameters != others.parameters:
            text += f"; {own.parameters:,} of them against {others.parameters or 0:,}"
        numbers = tuple(each.rank for each in group)
        verb = "holds" if len(numbers) == 1 else "hold"
        found.append(Finding("model", "warning", numbers, f"{ranks(numbers)} {verb} another model: {text}"))
    return found


def _of_no_stage(strays: Sequence[RankRow], parts: Sequence[Sequence[RankRow]]) -> list[Finding]:
    """Of ranks that hold what no stage does: a stage is mostly a run of neighbours, so they are set beside those."""
    if len(strays) > _BY_NAME:
        return [_together(strays)]
    found = []
    for row in strays:
        beside = min(parts, key=lambda part: min(abs(each.rank - row.rank) for each in part))
        more = _peak(row) - int(statistics.median(map(_peak, beside)))
        text = f"{units.size(abs(more))} {'more' if more > 0 else 'less'} at its peak than the stage of its neighbours"
        text += f": parameters {units.size(row.holding.parameter_bytes)} against "
        text += units.size(beside[0].holding.parameter_bytes)
        found.append(Finding("memory", "warning", (row.rank,), f"{ranks([row.rank])} holds {text}"))
    return found


def _unlike(group: Sequence[RankRow], policy: RanksPolicy) -> list[Finding]:
    """Ranks of one part whose peak is not the others'; of two, the larger."""
    if len(group) < 2:
        return []
    unlike: list[tuple[RankRow, int]] = []
    peaks = sorted(map(_peak, group))
    for row in group:
        median = _median_without(peaks, _peak(row))
        more = _peak(row) - median
        if abs(more) < max(policy.unlike_bytes, policy.unlike_share * median) or (len(group) == 2 and more < 0):
            continue
        # Where half of them are unlike the other half, the ones that hold more are told.
        if more < 0 and bisect.bisect_left(peaks, _peak(row) * (1 + policy.unlike_share)) * 2 >= len(group):
            continue
        unlike.append((row, more))
    if len(unlike) > _BY_NAME:
        return [_together([row for row, _ in unlike])]
    return [_unlike_finding(row, [other for other in group if other is not row], more) for row, more in unlike]


def _median_without(values: Sequence[int], one: int) -> int:
    """The median of sorted values but for this one of them."""
    left = len(values) - 1
    place = bisect.bisect_left(values, one)

    def at(number: int) -> int:
        return values[number if number < place else number + 1]

    return at(left // 2) if left % 2 else (at(left // 2 - 1) + at(left // 2)) // 2


def _unlike_finding(row: RankRow, others: Sequence[RankRow], more: int) -> Finding:
    batch = _batch(row, others)
    category, by = _main_difference(row, others, [key for key in _COMPARED if key != "inputs" or not batch])
    text = f"{units.size(abs(more))} {'more' if more > 0 else 'less'} than the others at its peak"
    # One that explains little of it says nothing.
    if category and abs(row.holding.of(category) - by) * 5 >= abs(more):
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


def _together(rows: Sequence[RankRow]) -> Finding:
    """Many of a kind in one line."""
    numbers = tuple(row.rank for row in rows)
    return Finding("memory", "warning", numbers, f"{ranks(numbers)} hold unlike much at their peaks; c compares two")


def _peak(row: RankRow) -> int:
    return row.peak.value or 0


def skew_bytes(rows: Sequence[RankRow]) -> Optional[int]:
    """Between the highest peak and the lowest of those that live; None of fewer than two."""
    peaks = [_peak(row) for row in rows if not row.over and row.peak.value is not None]
    return max(peaks) - min(peaks) if len(peaks) > 1 else None
