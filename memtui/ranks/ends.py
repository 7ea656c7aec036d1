"""Ranks that ended before the others, and ranks that came back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from memtui.analysis import units
from memtui.analysis.events import event_text, latest_oom
from memtui.analysis.policy import DEFAULT as SINGLE
from memtui.analysis.text import clean, phase_words
from memtui.analysis.verdict import UNHEARD, WITHOUT_A_WORD, end_text, is_unheard
from memtui.session.members import Member, in_order_of_end
from memtui.session.session import Session
from memtui.session.steps import step_number

from .finding import Finding
from .policy import RanksPolicy
from .words import ranks

#: Of an exception's words: gloo's and NCCL's are long.
_LONGEST = 160


def end_findings(members: Sequence[Member], now_ns: int, policy: RanksPolicy) -> list[Finding]:
    """Who of the newest lives ended first, where that was no ordinary end."""
    over = in_order_of_end(members)
    if not over:
        return []
    first, ended_ns = over[0]
    living = [each for each in members if not each.over]
    # Others may have ended before it, and have been killed: that is not heard as soon as an exception is.
    unsure = any(each.session.connection == "lost" for each in living)
    if living and now_ns - ended_ns < (policy.unsure_ns if unsure else policy.alone_ns):
        return []
    if not (first.failed or living):
        return []
    followed = [each for each, end_ns in over[1:] if end_ns - ended_ns <= policy.together_ns]
    text = f"{_who(first)} ended first: {end_words(first.session)}{_last(first.session)}"
    if not followed and living:
        verb = "goes" if len(living) == 1 else "go"
        text = f"{_who(first)} ended: {end_words(first.session)}{_last(first.session)}"
        text += f"; {_who(*living)} {verb} on without it"
    elif followed:
        later = units.duration(over[len(followed)][1] - ended_ns)
        text += f"; {_who(*followed)} followed within {later}"
    return [Finding("ended", "bad", tuple(each.rank or 0 for each in (first, *followed)), text)]


def out_of_memory_findings(members: Sequence[Member], now_ns: int) -> list[Finding]:
    """Allocations of ranks that live on, which failed of late."""
    found = []
    for member in members:
        session = member.session
        oom = latest_oom(session, session.default_device())
        if oom is None or member.over or member.rank is None or now_ns - oom.time_ns > SINGLE.recent_ns:
            continue
        text = f"rank {member.rank}: {event_text(oom, session.model)}; it goes on"
        found.append(Finding("out of memory", "bad", (member.rank,), text))
    return found


def restart_findings(current: Sequence[Member], past: Sequence[Member]) -> list[Finding]:
    """That ranks came back, and why their last life ended."""
    again = [each for each in current if each.life > 1]
    if not again:
        return []
    life = max(each.life for each in again)
    # One that has not come back itself may be why the others had to.
    before = in_order_of_end(each for each in (*past, *current) if each.life == life - 1)
    text = f"{_who(*again)} came back (life {life})"
    if before:
        first = before[0][0]
        text += f"; of the life before, {_who(first)} ended first: {end_words(first.session)}{_last(first.session)}"
    return [Finding("restarted", "unknown", tuple(each.rank or 0 for each in again), text)]


def _who(*members: Member) -> str:
    return ranks(each.rank for each in members if each.rank is not None)


def end_words(session: Session) -> str:
    """How a rank's process ended, whose exit status only its launcher knows."""
    end = session.end
    if end is None:
        return "not known"
    if end.exception or end.exit_status:
        return clean(end_text(end).removeprefix("ended: "), _LONGEST)
    if is_unheard(end):
        return UNHEARD
    if end.silent:
        return WITHOUT_A_WORD
    return "ended" if session.hello is None else "finished"


def _last(session: Session) -> str:
    """Its last figures."""
    frame = session.frame
    if frame is None:
        return ""
    device = session.device_frame(session.default_device())
    held: Optional[int] = None if device is None else device.allocated_bytes
    place = f"step {step_number(frame.step):,}, {phase_words(frame.phase)}"
    return f" (last seen in {place}, {units.size(held)} allocated)"
