"""What a server knows of trainings at one instant: rows, groups, and what is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Optional

from memtui.analysis import units
from memtui.analysis.text import clean
from memtui.ranks.differences import stages, whole_stages
from memtui.ranks.finding import Finding
from memtui.ranks.policy import DEFAULT
from memtui.ranks.row import RankRow
from memtui.ranks.stepping import slowest
from memtui.ranks.view import RanksView, summary_of

from .collect import Key, Look
from .findings import UNHEARD, findings_of
from .rows import Named, gone_row, row_of
from .runs import Run, runs_of

#: What ranks can be put together by.
Grouping = Literal["run", "host", "stage", "job"]
GROUPINGS: tuple[Grouping, ...] = ("run", "host", "stage", "job")
_WORST: dict[str, int] = {"bad": 0, "warning": 1}


@dataclass(frozen=True)
class Course:
    """A run at one instant: its view, and which series each rank's row is of."""

    run: Run
    view: RanksView
    keys: dict[tuple[int, int], Key]  # by rank and life


@dataclass(frozen=True)
class Group:
    """Ranks that have something in common, in the order of their numbers; `run` is the key of the run they are of."""

    name: str
    run: tuple[str, str, str]
    rows: tuple[RankRow, ...]
    findings: tuple[Finding, ...]

    @property
    def urgency(self) -> tuple[int, int]:
        """What is worst comes first: found to be bad, a warning, the least headroom."""
        worst = min((_WORST.get(finding.level, 2) for finding in self.findings), default=2)
        least = min((row.headroom.value for row in self.rows if row.headroom.value is not None), default=1 << 62)
        return worst, least


@dataclass(frozen=True)
class Fleet:
    """All runs at `time_s`, the server's Unix time."""

    look: Look
    courses: tuple[Course, ...]

    @property
    def age_s(self) -> float:
        """How old most of the figures are, against the server's clock."""
        ages = sorted(self.look.time_s - target.scraped_s for target in self.look.targets.values() if target.up)
        return max(0.0, ages[len(ages) // 2]) if ages else 0.0

    def groupings(self, course: Optional[Course]) -> tuple[Grouping, ...]:
        """Those by which there are several groups."""
        return tuple(each for each in GROUPINGS if len(self.groups(each, course)) > 1)

    def groups(self, by: Grouping, course: Optional[Course]) -> tuple[Group, ...]:
        """The groups of one run, or of all, the worst first."""
        chosen = self.courses if course is None or by == "run" else (course,)
        found: list[Group] = []
        for each in chosen:
            for name, rows in _divided(each, by):
                numbers = {row.rank for row in rows}
                own = tuple(finding for finding in each.view.findings if numbers.intersection(finding.ranks))
                label = name if by == "run" or len(chosen) == 1 else f"{each.run.name} · {name}".rstrip(" ·")
                found.append(Group(label, each.run.key, tuple(rows), own))
        return tuple(sorted(found, key=lambda group: (group.urgency, group.name)))


def fleet_of(look: Look) -> Fleet:
    """Everything that a look tells."""
    return Fleet(look, tuple(_course(run, look) for run in runs_of(look)))


def part_of(course: Course, group: Optional[Iterable[tuple[int, int]]]) -> RanksView:
    """The view of a run, or of those of its ranks (by rank and life) that are in a group."""
    view = course.view
    if group is None:
        return view
    wanted = set(group)
    rows = tuple(row for row in view.rows if (row.rank, row.life) in wanted)
    return _view(course.run, rows, (), view.findings, view.now_ns)


def _course(run: Run, look: Look) -> Course:
    rows = tuple(_row(each, look) for each in run.members)
    past = tuple(_row(each, look) for each in run.past)
    findings = findings_of(rows, run.members, look)
    keys = {(each.rank, each.life): each.key for each in (*run.members, *run.past)}
    return Course(run, _view(run, rows, past, findings, int(look.time_s * 1e9)), keys)


def _row(named: Named, look: Look) -> RankRow:
    rank = look.ranks.get(named.key)
    return gone_row(named, look) if rank is None else row_of(named, look, rank)


def _view(
    run: Run, rows: tuple[RankRow, ...], past: tuple[RankRow, ...], findings: Sequence[Finding], now_ns: int
) -> RanksView:
    numbers = {row.rank for row in rows}
    world = max((row.world_size for row in rows if row.world_size is not None), default=None)
    heard = tuple(row for row in rows if row.state not in UNHEARD)
    living = tuple(row for row in heard if not row.over)
    summary = summary_of(living, None, slowest(living, DEFAULT), DEFAULT)
    alive = sum(not row.over and row.state != "lost" for row in rows)
    apart = any(row.own_name for row in rows)
    parts = [f"{alive:,} of {len(rows):,}{'' if apart else ' ranks'} live"] if alive < len(rows) else []
    if world is not None and world > len(rows) == len(run.members):
        parts.append(f"{len(rows):,} of {world:,} ranks are here")
    return RanksView(
        program=run.name,
        hosts=tuple(dict.fromkeys(row.host for row in rows if row.host)),
        world_size=world,
        rows=rows,
        past=past,
        findings=tuple(each for each in findings if numbers.intersection(each.ranks)),
        summary=" · ".join([*parts, *([summary] if summary else [])]),
        facts="",
        now_ns=now_ns,
        apart=apart,
    )


def _divided(course: Course, by: Grouping) -> Iterable[tuple[str, list[RankRow]]]:
    rows = list(course.view.rows)
    if by == "run":
        return [(course.run.name, rows)]
    if by == "stage":
        return _stages(rows)
    found: dict[str, list[RankRow]] = defaultdict(list)
    for row in rows:
        key = course.keys[row.rank, row.life]
        found[row.host if by == "host" else clean(key.job, 60)].append(row)
    return found.items()


def _stages(rows: list[RankRow]) -> list[tuple[str, list[RankRow]]]:
    """Ranks that hold the same part of the model, in the order of their first rank; the rest together."""
    known = [row for row in rows if row.holding.parameter_bytes is not None]
    whole, _ = whole_stages(stages(known, DEFAULT))
    if len(whole) < 2:
        return [("", rows)]
    named = [
        (f"stage {place}: parameters {units.size(part[0].holding.parameter_bytes)}", part)
        for place, part in enumerate(whole)
    ]
    inside = {row.rank for part in whole for row in part}
    others = [row for row in rows if row.rank not in inside]
    return [*named, ("of no stage", others)] if others else named
