"""What the overview of ranks says at one instant, as frozen values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Optional

from memtui.analysis import units
from memtui.analysis.text import command
from memtui.session.members import Member, earlier, newest
from memtui.session.readings import DriverReading

from .apart import apart_findings, apart_summary, is_apart
from .contexts import context_findings
from .differences import difference_findings, skew_bytes, stages
from .ends import end_findings, out_of_memory_findings, restart_findings
from .finding import Finding
from .links import link_findings
from .policy import DEFAULT, RanksPolicy
from .row import RankRow, build_row, who
from .stepping import Slowest, slowest, stepping_findings

Order = Literal["rank", "headroom", "skew", "outliers"]
ORDERS: tuple[Order, ...] = ("rank", "headroom", "skew", "outliers")
#: What comes first of what was found.
URGENCY = {"bad": 0, "warning": 1, "unknown": 2, "good": 3}


@dataclass(frozen=True)
class RanksView:
    """Rows by rank, what was found between them, and all of them in a line."""

    program: str
    hosts: tuple[str, ...]
    world_size: Optional[int]
    rows: tuple[RankRow, ...]
    past: tuple[RankRow, ...]  # earlier lives
    findings: tuple[Finding, ...]  # the worst first
    summary: str
    facts: str  # of buckets and shards, in a quiet line; or ""
    now_ns: int
    apart: bool = False  # of unlike trainings, or one process alone: nothing is compared, the numbers are no ranks

    def ordered(self, order: Order) -> tuple[RankRow, ...]:
        """By rank, by headroom (least first), by how far from the median its peak is (most first), or those first that
        were found to be wrong, the worst of them at the top.
        """
        if order == "headroom":
            return tuple(sorted(self.rows, key=lambda row: (row.over, _or_last(row.headroom.value), row.rank)))
        if order == "skew":
            middle = _median(self.rows)
            return tuple(sorted(self.rows, key=lambda row: (row.over, -abs((row.peak.value or 0) - middle), row.rank)))
        if order == "outliers":
            worst: dict[int, int] = {}
            for finding in self.findings:
                for rank in finding.ranks if finding.level in ("bad", "warning") else ():
                    worst[rank] = min(worst.get(rank, 2), URGENCY[finding.level])

            def place(row: RankRow) -> tuple[int, bool, int, int, int]:
                urgency = min(URGENCY[row.level], 2)
                # Those with which all is well stay in their places.
                room = _or_last(row.headroom.value) if row.rank in worst or urgency < 2 else 0
                return worst.get(row.rank, 2), row.over, urgency, room, row.rank

            return tuple(sorted(self.rows, key=place))
        return self.rows


def build_ranks(
    members: Iterable[Member],
    now_ns: int,
    driver: Optional[DriverReading] = None,
    label: str = "",
    policy: RanksPolicy = DEFAULT,
) -> RanksView:
    """The view of all members at `now_ns`; `driver` is a reading of all their devices, `label` what was started."""
    kept = list(members)
    current, past = newest(kept), earlier(kept)
    rows = tuple(build_row(member, now_ns, policy.looks) for member in current)
    by_rank = {member.rank: member for member in current if member.rank is not None}
    apart = is_apart(kept)
    hosts = tuple(dict.fromkeys(row.host for row in rows if row.host))
    cut = link_findings(current)
    heard = [row for row in rows if all(row.rank not in finding.ranks for finding in cut)]
    if apart:
        found = [*cut, *apart_findings(current, now_ns)]
    else:
        found = [
            *cut,
            *end_findings(current, now_ns, policy),
            *out_of_memory_findings(current, now_ns),
            *stepping_findings(heard, policy),
            *(finding for host in (hosts or ("",)) for finding in _contexts(host, rows, by_rank, driver)),
            *difference_findings(rows, policy),
            *restart_findings(current, past),
        ]
    found.sort(key=lambda finding: URGENCY[finding.level])
    worlds = [row.world_size for row in rows if row.world_size is not None]
    world = max(worlds, default=None)
    return RanksView(
        program=command(label.split()) or _program(current),
        hosts=hosts,
        world_size=world,
        rows=rows,
        past=tuple(build_row(member, now_ns, policy.looks) for member in past),
        findings=tuple(found),
        summary=apart_summary(current, rows) if apart else summary_of(rows, world, slowest(heard, policy), policy),
        facts="" if apart else _facts(rows),
        now_ns=now_ns,
        apart=apart,
    )


def _contexts(
    host: str, rows: tuple[RankRow, ...], members: dict[int, Member], driver: Optional[DriverReading]
) -> list[Finding]:
    """Devices are shared on one machine; two machines' virtual ones may have the same names."""
    here = [row for row in rows if row.host in ("", host)]
    return context_findings(here, members, () if driver is None else driver.devices)


def _program(members: list[Member]) -> str:
    told = next((each.session.hello for each in members if each.session.hello is not None), None)
    return "" if told is None else command(told.argv)


def summary_of(rows: tuple[RankRow, ...], world: Optional[int], slow: Optional[Slowest], policy: RanksPolicy) -> str:
    """ "fullest rank 5, 97 % · skew 9.8 GiB · steps 1,201 to 1,203 · slowest rank 5, +41 ms a step"."""
    living = [row for row in rows if not row.over]
    parts = [f"{len(living)} of {len(rows)} ranks live"] if len(living) < len(rows) else []
    if world is not None and world > len(rows):
        parts.append(f"{len(rows)} of {world} ranks are here")
    full = [(row.percent, row.rank) for row in living if row.percent is not None]
    if full:
        percent, rank = max(full, key=lambda each: (each[0], -each[1]))
        fullest = who(row for row in living if row.rank == rank)
        parts.append(f"fullest {fullest}, {percent:.0f} %")
    alike = max((skew_bytes(group) or 0 for group in stages(living, policy)), default=0)
    if len(living) > 1:
        parts.append(f"skew {units.size(alike)}")
    steps = sorted(row.step for row in living if row.step is not None)
    if steps:
        parts.append(f"step {steps[0]:,}" if steps[0] == steps[-1] else f"steps {steps[0]:,} to {steps[-1]:,}")
    if slow is not None:
        parts.append(f"slowest rank {slow.rank}, +{units.duration(slow.by_ns)} {slow.what}")
    return " · ".join(parts)


def _facts(rows: tuple[RankRow, ...]) -> str:
    """What distributed training itself holds: buckets, or shards and what is gathered of them."""
    ddp = [row.holding.of("communication") for row in rows if row.holding.wrapped == "ddp"]
    fsdp = [row.holding for row in rows if row.holding.wrapped == "fsdp"]
    parts = []
    if any(ddp):
        parts.append(f"DDP: reduction buckets {_span(ddp)} a rank")
    if fsdp:
        sharded = _span([each.of("parameters") for each in fsdp])
        gathered = [each.of("communication") for each in fsdp]
        seen = f", gathered up to {units.size(max(gathered))}" if any(gathered) else ""
        parts.append(f"FSDP: parameters sharded {sharded} a rank{seen}")
    return " · ".join(parts)


def _span(values: list[int]) -> str:
    low, high = units.size(min(values)), units.size(max(values))
    return low if low == high else f"{low} to {high}"


def _median(rows: tuple[RankRow, ...]) -> int:
    peaks = sorted(row.peak.value for row in rows if row.peak.value is not None and not row.over)
    return peaks[len(peaks) // 2] if peaks else 0


def _or_last(value: Optional[int]) -> int:
    return 1 << 62 if value is None else value
