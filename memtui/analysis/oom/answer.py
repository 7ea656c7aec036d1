"""The answer to one out-of-memory error: its cause, who held the memory, and what helps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

from . import words
from .cause import Cause, cause_of, find_cause
from .evidence import Evidence, Live, evidence_of
from .interval import Interval
from .message import Message
from .remedies import Remedy, for_complaint, not_helping, remedies
from .series import Series, course_text


@dataclass(frozen=True)
class Row:
    """A figure in the table under the sentence; `text` as it was printed, or "" where it was derived."""

    name: str
    bytes: Interval
    text: str = ""


@dataclass(frozen=True)
class Answer:
    """What is said of one error."""

    cause: Cause
    sentence: str
    deciding: str
    notes: tuple[str, ...]
    rows: tuple[Row, ...]
    remedies: tuple[Remedy, ...]
    not_helping: tuple[str, ...]


def explain(message: Message, live: Optional[Live] = None, course: Optional[Series] = None) -> Answer:
    """The answer to a message, with whatever else is known of the process.

    `course` is that of what was allocated in the steps before it: a leak, or what is none.
    """
    live = live or Live()
    if course is not None and course.course == "leak":
        grown = round((course.bytes_per_step or 0) * (course.last_step - course.first_step))
        live = replace(live, growth_bytes_per_step=course.bytes_per_step, grown_bytes=grown)
    evidence = evidence_of(message, live)
    cause = cause_of(message, evidence)
    helping = for_complaint(message.complaint) if cause.reason == "no figures" else remedies(cause, evidence)
    answer = _answer(cause, evidence, message, helping)
    text = "" if course is None else course_text(course)
    return replace(answer, notes=(*answer.notes, f"Before it, by the log: {text}.")) if text else answer


def explain_evidence(evidence: Evidence) -> Answer:
    """The answer to an error that was watched: exact figures, no message."""
    cause = find_cause(evidence)
    return _answer(cause, evidence, None, remedies(cause, evidence))


def _answer(cause: Cause, evidence: Evidence, message: Optional[Message], helping: tuple[Remedy, ...]) -> Answer:
    return Answer(
        cause,
        words.sentence(cause, evidence, message),
        words.deciding(cause, message),
        words.notes(cause, evidence, message),
        _rows(evidence, message),
        helping,
        not_helping(cause, evidence),
    )


def _rows(evidence: Evidence, message: Optional[Message]) -> tuple[Row, ...]:
    def printed(name: str) -> str:
        figure = message.figures.get(name) if message is not None else None
        return figure.text if figure is not None else ""

    unknown = ("", None, "")
    pinned = evidence.live.largest_free_block_bytes
    rows: tuple[tuple[str, Optional[Interval], str], ...] = (
        ("asked for", evidence.tried, printed("tried")),
        ("free on the device", evidence.free, printed("free")),
        ("idle in PyTorch", _narrow(evidence.idle), printed("unallocated") or printed("cached")),
        ("largest free block", None if pinned is None else Interval.exactly(pinned), ""),
        ("live in PyTorch", evidence.live_tensors, "" if evidence.private else printed("allocated")),
        ("free in graphs' pools", evidence.private, printed("private")),
        ("this process, outside PyTorch", _narrow(evidence.own_outside), printed("other")),
        ("other processes", _narrow(evidence.others), ""),
        ("outside this PyTorch", _narrow(evidence.outside), "") if evidence.own is None else unknown,
        ("allowed", evidence.allowed, printed("allowed")),
        ("device", evidence.total, printed("total")),
    )
    return tuple(Row(name, interval, text) for name, interval, text in rows if interval is not None)


def _narrow(interval: Optional[Interval]) -> Optional[Interval]:
    """None for what is a mere bound, or nothing but rounding: it is no figure to show."""
    if interval is None or interval.high - interval.low > max(interval.middle // 2, interval.high // 10):
        return None
    return interval
