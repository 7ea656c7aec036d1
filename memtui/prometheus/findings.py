"""What is wrong with ranks, as far as a server's samples tell: for a few of them by name, for many in one line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from memtui.analysis import units
from memtui.analysis.text import clean, place_words
from memtui.ranks.differences import difference_findings
from memtui.ranks.finding import Finding
from memtui.ranks.policy import DEFAULT, RanksPolicy
from memtui.ranks.row import RankRow, who
from memtui.ranks.stepping import stepping_findings
from memtui.ranks.view import URGENCY
from memtui.ranks.words import ranks

from .collect import Look
from .rows import Named, end_text

#: Ranks of which nothing is known of now.
UNHEARD = ("silent", "lost")
#: Ends that are as somebody wanted them.
_WANTED = ("ok", "interrupted")
#: More of a kind are told together.
_BY_NAME = 3
_NEVER = 1 << 62


def findings_of(rows: Sequence[RankRow], named: Sequence[Named], look: Look) -> tuple[Finding, ...]:
    """Of the rows of one run, the worst first; `named` says which series each row is of."""
    # When frames are missed is told by the exporter, which is near; between two scrapes all of them seem late.
    policy = replace(DEFAULT, silent_ns=_NEVER)
    heard = [row for row in rows if row.state not in UNHEARD]
    found = [
        *_gone(rows, named, look),
        *_ended(rows, named, look),
        *_silent(rows),
        *_standing(heard, policy),
        *_exhausted(rows, named, look),
        *_full(rows),
        *_leaking(rows, named, look),
        *difference_findings(heard, policy),
        *_restarted(rows),
    ]
    return tuple(sorted(found, key=lambda finding: URGENCY[finding.level]))


def _gone(rows: Sequence[RankRow], named: Sequence[Named], look: Look) -> list[Finding]:
    by_target: dict[str, list[RankRow]] = defaultdict(list)
    for row, each in zip(rows, named):
        if row.state == "lost":
            by_target[each.key.instance].append(row)
    if len(by_target) > _BY_NAME:
        gone = tuple(row.rank for lost in by_target.values() for row in lost)
        text = f"{len(by_target)} hosts are not scraped any more: nothing is known of {ranks(gone)}"
        return [Finding("gone", "bad", gone, text)]
    return [
        Finding(
            "gone",
            "bad",
            tuple(row.rank for row in lost),
            f"{clean(instance, 60)} is not scraped any more{_since(look, instance)}: its host is down, or memtui serve "
            f"has ended there; nothing is known of {who(lost)}",
        )
        for instance, lost in by_target.items()
    ]


def _since(look: Look, instance: str) -> str:
    """For how long a target has not been up, as far as that is known."""
    known = [each.seen_s for place, each in look.targets.items() if place.instance == instance and not each.up]
    seen_s = next((each for each in known if each is not None), None)
    if seen_s is None:
        return ""
    seconds = max(0, int(look.time_s - seen_s))
    age = f"{seconds} s" if seconds < 60 else units.duration(seconds * 1_000_000_000)
    return f", for {age}"


def _ended(rows: Sequence[RankRow], named: Sequence[Named], look: Look) -> list[Finding]:
    over = [(row, each) for row, each in zip(rows, named) if row.over]
    living = sum(not row.over and row.state != "lost" for row in rows)
    by_outcome: dict[str, list[RankRow]] = defaultdict(list)
    for row, each in over:
        by_outcome[look.outcome(each.key)].append(row)
    found = []
    for outcome, ended in by_outcome.items():
        if outcome in _WANTED and not living:
            continue
        numbers = tuple(row.rank for row in ended)
        text = f"{who(ended)}: {end_text(outcome)}"
        if len(ended) == 1 and ended[0].completed is not None and ended[0].phase:
            text += f" ({place_words(ended[0].phase, ended[0].completed)})"
        if living:
            text += f"; {living:,} {'goes' if living == 1 else 'go'} on without {'it' if len(ended) == 1 else 'them'}"
        found.append(Finding("ended", "bad", numbers, text))
    return found


def _silent(rows: Sequence[RankRow]) -> list[Finding]:
    silent = [row for row in rows if row.state == "silent"]
    if len(silent) > _BY_NAME:
        least = min(row.age_ns or 0 for row in silent)
        hosts = dict.fromkeys(row.host for row in silent)
        where = f" on {next(iter(hosts))}" if len(hosts) == 1 else f" on {len(hosts)} hosts"
        numbers = tuple(row.rank for row in silent)
        text = f"no frames of {ranks(numbers)}{where} for {units.duration(least)} or more, though they are scraped"
        return [Finding("silent", "bad", numbers, text)]
    found = []
    for row in silent:
        place = "" if row.completed is None else f": it was {place_words(row.phase, row.completed)}"
        text = f"no frame of {who([row])} ({row.host}) for {units.duration(row.age_ns)}, though it is scraped"
        found.append(Finding("silent", "bad", (row.rank,), text + place))
    return found


def _standing(heard: Sequence[RankRow], policy: RanksPolicy) -> list[Finding]:
    """Ranks that are stopped, or step no more."""
    stopped = tuple(row.rank for row in heard if row.state == "stopped")
    if len(stopped) > _BY_NAME:
        return [Finding("stopped", "bad", stopped, f"{ranks(stopped)} are stopped (T): kill -CONT lets them go on")]
    found = stepping_findings(heard, policy)
    if len(found) <= _BY_NAME:
        return found
    numbers = tuple(rank for each in found for rank in each.ranks)
    return [Finding("stalled", "bad", numbers, f"{ranks(numbers)} stopped stepping, and others did not")]


def _exhausted(rows: Sequence[RankRow], named: Sequence[Named], look: Look) -> list[Finding]:
    counted = [
        (row, int(_figure(each, look, "ooms_total")))
        for row, each in zip(rows, named)
        if not row.over and _figure(each, look, "ooms_total") >= 1
    ]
    if len(counted) > _BY_NAME:
        numbers = tuple(row.rank for row, _ in counted)
        return [Finding("out of memory", "bad", numbers, f"{ranks(numbers)} have run out of memory, and go on")]
    return [
        Finding(
            "out of memory",
            "bad",
            (row.rank,),
            f"{who([row])} has run out of memory {'once' if count == 1 else f'{count:,} times'}, and goes on",
        )
        for row, count in counted
    ]


def _full(rows: Sequence[RankRow]) -> list[Finding]:
    full = sorted(
        (row for row in rows if row.level in ("bad", "warning") and not row.over),
        key=lambda row: row.headroom.value or 0,
    )
    if not full:
        return []
    first = full[0]
    level = first.level
    room = first.headroom.value or 0
    peak = f"predicted peak {units.size(first.predicted.value)}"
    left = f"is short of {units.size(-room)}" if room < 0 else f"has {units.size(room)} left"
    if len(full) > _BY_NAME:
        numbers = tuple(row.rank for row in full)
        text = f"{ranks(numbers)} are nearly full; {who([first])} {left} ({peak})"
        return [Finding("full", level, numbers, text)]
    found = []
    for row in full:
        room = row.headroom.value or 0
        left = f"does not fit, short by {units.size(-room)}" if room < 0 else f"is nearly full, {units.size(room)} left"
        text = f"{who([row])} ({row.host}) {left}: predicted peak {units.size(row.predicted.value)}"
        found.append(Finding("full", row.level, (row.rank,), text))
    return found


def _leaking(rows: Sequence[RankRow], named: Sequence[Named], look: Look) -> list[Finding]:
    leaking = [
        (row, int(_figure(each, look, "leak_bytes_per_step")), _figure(each, look, "steps_left"))
        for row, each in zip(rows, named)
        if not row.over and _figure(each, look, "leak_bytes_per_step") >= 1
    ]
    if not leaking:
        return []
    numbers = tuple(row.rank for row, _, _ in leaking)
    row, grown, left = max(leaking, key=lambda each: each[1])
    text = f"{who([row])} grows {units.size(grown)} a step"
    text += f": full in about {int(left):,} steps" if 0 < left < 1e12 else ""
    if len(leaking) > 1:
        text += f"; so do {len(leaking) - 1:,} more"
    return [Finding("leak", "warning", numbers, text)]


def _restarted(rows: Sequence[RankRow]) -> list[Finding]:
    again = tuple(row.rank for row in rows if row.life > 1)
    if not again:
        return []
    life = max(row.life for row in rows)
    return [Finding("restarted", "unknown", again, f"{ranks(again)} came back (life {life})")]


def _figure(named: Named, look: Look, name: str) -> float:
    rank = look.ranks.get(named.key)
    return 0.0 if rank is None else rank.main()[1].figures.get(name, 0.0)
