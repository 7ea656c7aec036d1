"""A run that ended out of memory: its cause by the figures of that instant, and what helps against it."""

from __future__ import annotations

from typing import Optional

from memtui.analysis.events import latest_oom
from memtui.analysis.leak import Leak
from memtui.analysis.oom.answer import Answer, explain_evidence
from memtui.analysis.oom.evidence import Evidence, Live
from memtui.analysis.oom.interval import Interval
from memtui.analysis.whatif.facts import batch_of
from memtui.session.session import Session
from memtui.wire.frames import Event

from .facts import Row, Section, cell

_REMEDIES = 3
_COLUMNS = (("saved_bytes", "up to"),)
#: A look at the tensors that is older says nothing of who held what then.
_LOOK_NS = 60_000_000_000


def fatal_oom(session: Session, device: str) -> Optional[Event]:
    """The error that ended the run; None where it ended otherwise, or is not known to have ended."""
    event, end = latest_oom(session, device), session.end
    if event is None or end is None or end.exit_status == 0:
        return None
    if end.exit_status is None and not end.exception and not end.text:
        return None
    return event


def answer_to(session: Session, event: Event, leak: Optional[Leak]) -> Answer:
    """The cause and the remedies, from the exact figures that the allocator had then."""
    figures = event.figures
    allocated, reserved = figures.get("allocated_bytes"), figures.get("reserved_bytes")
    frame = session.device_frame(event.device or "")
    evidence = Evidence(
        tried=_exactly(figures.get("asked_bytes")),
        total=_exactly(figures.get("device_total_bytes")),
        free=_exactly(figures.get("device_free_bytes")),
        allocated=_exactly(allocated),
        reserved=_exactly(reserved),
        idle=_exactly(None if allocated is None or reserved is None else reserved - allocated),
        allowed=_exactly(None if frame is None else frame.allowed_bytes),
        live=_live(session, event, leak),
    )
    return explain_evidence(evidence)


def _live(session: Session, event: Event, leak: Optional[Leak]) -> Live:
    look = session.classification(event.device or "")
    fresh = look is not None and abs(event.time_ns - look[1]) < _LOOK_NS
    return Live(
        phase=event.phase,
        step=event.step,
        first_optimizer_step=event.step == 0 and session.steps.first is None,
        categories=look[0].categories if look is not None and fresh else {},
        growth_bytes_per_step=None if leak is None else leak.bytes_per_step,
        batch=batch_of(() if session.hello is None else session.hello.argv),
        devices=None if session.hello is None else session.hello.world_size,
    )


def remedies_section(answer: Answer) -> Section:
    """What helps against that cause, in this order, and what does not."""
    rows = [
        Row(
            f"remedy_{number}",
            f"{number}",
            (cell("saved_bytes", remedy.saves_bytes, "predicted"),),
            f"{remedy.action}; price: {remedy.price}",
        )
        for number, remedy in enumerate(answer.remedies[:_REMEDIES], start=1)
    ]
    rows += [Row(f"not_{number}", "not", (), text) for number, text in enumerate(answer.not_helping, start=1)]
    return Section("remedies", "What helps, in this order", tuple(rows), _COLUMNS, ("predicted",))


def _exactly(value: Optional[int]) -> Optional[Interval]:
    return None if value is None else Interval.exactly(value)
