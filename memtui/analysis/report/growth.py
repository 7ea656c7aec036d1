"""What grows from step to step, and what is reserved and of no use."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from memtui.analysis import units
from memtui.analysis.fragmentation import Holes
from memtui.analysis.growth import growth_line
from memtui.analysis.leak import Leak, find_larger
from memtui.analysis.oom.series import Figure, Series, course_text, find_course
from memtui.analysis.policy import Policy
from memtui.session.floors import Floor
from memtui.session.session import Session
from memtui.session.steps import step_number

from .facts import Cell, Row, Section, cell

#: Beginnings of steps that say anything of their course.
_FEWEST = 6
#: Courses that say more than an even rate does.
_SHAPED = ("staircase", "saw-tooth")
#: What may have left something between two steps' beginnings, and instants between them at which it is asked for.
_EVENTS, _INSTANTS = ("checkpoint", "evaluation"), 32


def growth_section(session: Session, device: str, leak: Optional[Leak], holes: Holes, policy: Policy) -> Section:
    """Growth, by steps and by categories, and fragmentation."""
    rows = (_growth(session, device, leak, policy), _fragmentation(session, device, holes, policy))
    return Section("growth", "Growth and fragmentation", rows)


def _growth(session: Session, device: str, leak: Optional[Leak], policy: Policy) -> Row:
    larger = find_larger(session.floors(device), policy) if leak is None else None
    rate, grown = leak or larger, growth_line(session, device, leak, larger, policy)
    course, texts = left_behind(session, device, leak, policy), []
    if course.course != "unknown" and (rate is None or course.course in _SHAPED):
        texts.append(f"as steps began, {_course_text(course, policy)}")
    if grown and (rate is not None or not texts or not grown.startswith("nothing")):
        texts.append(grown)
    text = "; ".join(texts) or f"{units.UNKNOWN} too few steps: {policy.leak_steps:,} tell a leak from a warm-up"
    per_step = course.bytes_per_step if rate is None and course.course in (*_SHAPED, "growth") else None
    per_step = rate.bytes_per_step if rate is not None else per_step
    cells: tuple[Cell, ...] = () if per_step is None else (cell("bytes_per_step", round(per_step), "derived"),)
    return Row("growth", "growth", cells, text)


def _course_text(course: Series, policy: Policy) -> str:
    """The course in words; of few steps without saying that what stands still is no leak."""
    text = course_text(course)
    if course.course not in ("steady", "plateau") or course.last_step - course.first_step >= policy.leak_steps:
        return text
    return f"{text.partition(': ')[0]}; {policy.leak_steps:,} steps tell a leak from a warm-up"


def left_behind(session: Session, device: str, leak: Optional[Leak], policy: Policy) -> Series:
    """The course of what steps leave behind: of what is allocated as their forwards begin, by the steps' numbers."""
    floors = session.floors(device)
    held = {} if floors is None else {floor.step: floor for level in reversed(floors.levels) for floor in level}
    if len(held) < _FEWEST:
        return Series("unknown")
    ordered = [held[step] for step in sorted(held)]
    figures = [
        Figure(step_number(floor.step), floor.allocated_bytes, _between(session, before, floor))
        for before, floor in zip([ordered[0], *ordered], ordered)
    ]
    found = find_course(figures, policy)
    # Where blocks are counted, they decide what is a leak: this is no more than its bytes.
    return replace(found, course="growth") if found.course == "leak" and leak is None else found


def _between(session: Session, before: Floor, floor: Floor) -> str:
    """What came between two steps' beginnings that may have left something."""
    if floor.allocated_bytes <= before.allocated_bytes:
        return ""
    seen = session.phases.window(before.time_ns, floor.time_ns, _INSTANTS)
    return next((phase for phase in _EVENTS if phase in seen), "")


def _fragmentation(session: Session, device: str, holes: Holes, policy: Policy) -> Row:
    frame, known = session.device_frame(device), session.device(device)
    if device == "host" or frame is None or frame.reserved_bytes is None or frame.allocated_bytes is None:
        return Row("fragmentation", "fragmentation", (), f"{units.UNKNOWN} this allocator's blocks are not told")
    allocated, reserved = frame.allocated_peak_bytes, frame.reserved_peak_bytes
    unused = None if allocated is None or reserved is None else reserved - allocated
    total = None if known is None else known.total_bytes
    large = [
        held for held in (unused, holes.pinned_bytes) if held and held > policy.holes_share * (total or reserved or 0)
    ]
    cells = (cell("unused_at_peak_bytes", unused, "derived"), cell("inactive_split_bytes", holes.pinned_bytes))
    told = "" if unused is None else f"{units.size(unused)} more reserved than live, at their peaks"
    if not large:
        return Row("fragmentation", "fragmentation", cells, ": ".join(filter(None, ("none to speak of", told))))
    retries = f"{frame.num_alloc_retries or 0:,} retries"
    text = ", ".join(filter(None, (told, f"{units.size(holes.pinned_bytes)} pinned", retries)))
    text += ": steady shapes, or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; a memory snapshot in memtui open "
    return Row("fragmentation", "fragmentation", cells, text + "shows the blocks")
