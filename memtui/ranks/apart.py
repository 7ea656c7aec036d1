"""Processes of unlike trainings beside each other: nothing is compared between them."""

from __future__ import annotations

from collections.abc import Sequence

from memtui.analysis import units
from memtui.analysis.events import event_text, latest_oom
from memtui.analysis.policy import DEFAULT as SINGLE
from memtui.analysis.verdict import is_unheard
from memtui.session.members import Member

from .ends import end_words
from .finding import Finding
from .row import RankRow


def is_apart(members: Sequence[Member]) -> bool:
    """Whether they are of more than one training: then they are numbered as they came."""
    return any(member.number is not None for member in members)


def apart_findings(members: Sequence[Member], now_ns: int) -> list[Finding]:
    """Of each by itself: that it failed, or ran out of memory."""
    found = []
    for member in members:
        session, place = member.session, (member.rank or 0,)
        oom = latest_oom(session, session.default_device())
        if member.failed:
            found.append(Finding("ended", "bad", place, f"{member.name} ended: {end_words(session)}"))
        elif session.end is not None and is_unheard(session.end):
            found.append(Finding("ended", "unknown", place, f"{member.name} ended: {end_words(session)}"))
        elif oom is not None and not member.over and now_ns - oom.time_ns <= SINGLE.recent_ns:
            text = f"{member.name}: {event_text(oom, session.model)}; it goes on"
            found.append(Finding("out of memory", "bad", place, text))
    return found


def apart_summary(members: Sequence[Member], rows: Sequence[RankRow]) -> str:
    """ "2 of 3 live · fullest box/4242, 97 % · largest peak 12.3 GiB"."""
    names = {member.rank: member.name for member in members}
    living = [row for row in rows if not row.over]
    parts = [f"{len(living)} of {len(rows)} live"] if len(living) < len(rows) else []
    full = [(row.percent, row.rank) for row in living if row.percent is not None]
    if full:
        percent, number = max(full, key=lambda each: (each[0], -each[1]))
        parts.append(f"fullest {names.get(number, '')}, {percent:.0f} %")
    peaks = [row.peak.value for row in living if row.peak.value is not None]
    if peaks:
        parts.append(f"largest peak {units.size(max(peaks))}")
    return " · ".join(parts)
