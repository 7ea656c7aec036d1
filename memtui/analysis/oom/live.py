"""What is known of an out-of-memory error that was watched: exact figures of that instant, and the steps before it."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Optional

from memtui.analysis import units
from memtui.analysis.leak import Leak, find_leak
from memtui.analysis.optimizers import optimizer_state
from memtui.analysis.policy import DEFAULT, Policy
from memtui.session.readings import DeviceReading
from memtui.session.session import Session
from memtui.wire.frames import CATEGORIES, Classification, Event, Failure, Pinned

from .evidence import Evidence, Larger, Live, Outgrown, Pin, evidence_of
from .interval import Interval
from .parse import find_messages

#: A reading of the driver that is further away says nothing of who held what.
_DRIVER_NS = 10_000_000_000
#: Steps that are compared with must be so many, and this one needs so much more than any of them.
_FEWEST_STEPS, _MORE = 3, 1.02
#: Inputs that are larger by less are no longer batch.
_LARGER = 1.05
#: Where more than this share has no known owner, a step that was looked at tells more.
_UNKNOWN_SHARE = 0.2
#: A step is like another one where it had so much of what is allocated in that.
_LIKE = 0.75


def live_evidence(session: Session, event: Event, policy: Policy = DEFAULT) -> Evidence:
    """Everything about `event`, an "oom" of `session`; exact but for what only torch's message says."""
    figures, failure = event.figures, event.failure or Failure()
    device = event.device or ""
    private = None if failure.blocks is None else failure.blocks.private_pool_idle_bytes
    allocated, reserved = figures.get("allocated_bytes"), figures.get("reserved_bytes")
    idle = None if allocated is None or reserved is None else reserved - allocated - (private or 0)
    total, free = figures.get("device_total_bytes"), figures.get("device_free_bytes")
    known = session.device(device)
    found = Evidence(
        tried=_exactly(figures.get("asked_bytes")),
        total=_exactly(total),
        free=_exactly(free),
        allocated=_exactly(None if allocated is None else allocated + (private or 0)),
        idle=_exactly(idle),
        reserved=_exactly(reserved),
        private=_exactly(private or None),
        allowed=_exactly(figures.get("allowed_bytes")),
        backend="HIP" if known is not None and known.kind == "rocm" else "CUDA",
        expandable_hint=None if failure.expandable is None else not failure.expandable,
        watched=True,
        live=_live(session, event, failure, policy),
    )
    own, others = _shares(session, event, total, free)
    return replace(found, own=own, others=others)


def leak_before(session: Session, event: Event, policy: Policy = DEFAULT) -> Optional[Leak]:
    """What grew from step to step until nothing was left."""
    leak = find_leak(session.floors(event.device or ""), 0, policy)
    return None if leak is None or leak.first_step > event.step else leak


def _risen(session: Session, event: Event, leak: Leak) -> tuple[int, int]:
    """When a leak began to rise, and by how much it has: the steps that tell its slope may begin before it does."""
    floors = session.floors(event.device or "")
    levels = () if floors is None else floors.levels
    course = {each.step: each.allocated_bytes for level in levels for each in level if each.step >= leak.first_step}
    if not course:
        return leak.first_step, round(leak.bytes_per_step * (event.step - leak.first_step))
    newest = max(course)
    foot = max(step for step, size in course.items() if size <= course[min(course)])
    return foot, course[newest] - course[foot] + round(leak.bytes_per_step * max(0, event.step - newest))


def _exactly(size: Optional[int]) -> Optional[Interval]:
    return None if size is None else Interval.exactly(size)


# Who else is on the device


def _shares(
    session: Session, event: Event, total: Optional[int], free: Optional[int]
) -> tuple[Optional[Interval], Optional[Interval]]:
    """What this process and what all others hold: by the driver, else by torch's own message."""
    if total is None or free is None:
        return None, None
    reading = session.reading(event.device or "")
    others = None if reading is None else _others(reading, event, total - free)
    if reading is not None and others is not None:
        own = total - free - others - (reading.driver_reserved_bytes or 0)
        return _exactly(own), _exactly(others)
    return _told(session, event, total - free)


def _others(reading: DeviceReading, event: Event, used: int) -> Optional[int]:
    """Of all other processes; None where the list is too old, or may name this one as another."""
    held = reading.other_process_bytes()
    if held is None or abs(reading.time_ns - event.time_ns) > _DRIVER_NS:
        return None
    reserved = event.figures.get("reserved_bytes", 0)
    gone = reading.time_ns >= event.time_ns
    listed = reading.process_bytes is not None or (gone and reserved > 0) or not reserved
    return held if listed and held + reserved <= used else None


def _told(session: Session, event: Event, used: int) -> tuple[Optional[Interval], Optional[Interval]]:
    """From the message of the exception that ended the program, where it is this error's; all that is used is exact."""
    text = "" if session.end is None else session.end.text
    asked = event.figures.get("asked_bytes", 0)
    for found in find_messages(io.BytesIO(text.encode(errors="replace"))) if text else ():
        told = evidence_of(found.message)
        if told.tried is not None and told.tried.low <= asked <= told.tried.high:
            if told.own is None or told.others is None:
                return told.own, told.others
            return told.own, (Interval.exactly(used) - told.own).at_least_nothing()
    return None, None


# What the training was at


def _live(session: Session, event: Event, failure: Failure, policy: Policy) -> Live:
    device, blocks = event.device or "", failure.blocks
    leak = leak_before(session, event, policy)
    since, grown = (None, None) if leak is None else _risen(session, event, leak)
    categories, as_of = composition(session, event)
    first = _is_first(session, event)
    return Live(
        phase=event.phase,
        step=event.step,
        first_optimizer_step=first,
        state_bytes=_whole_state(session, device) if first else None,
        state_to_come_bytes=_to_come(session, event, failure) if first else None,
        categories=categories,
        categories_step=as_of,
        births_known=as_of is not None or failure.classification is None or _births_known(failure),
        evaluates=failure.switched_to_eval and event.phase == "forward",
        growth_bytes_per_step=None if leak is None else leak.bytes_per_step,
        grown_bytes=grown,
        growth_since_step=since,
        growing_category="" if leak is None else _growing(session, device, leak),
        larger_batch=_larger(session, event),
        outgrown=_outgrown(session, event),
        largest_free_block_bytes=None if blocks is None else blocks.largest_free_block_bytes,
        pinned_segments=None if blocks is None else blocks.num_pinned_segments,
        pins=tuple(Pin(pin_name(each), each.block_bytes, each.segment_bytes) for each in failure.pinned),
        expandable=failure.expandable,
    )


def pin_name(pinned: Pinned) -> str:
    """ "activations at 0x7f2c00000000 in a segment of 600.0 MiB"."""
    what = pinned.category.replace("_", " ") or "a block"
    return f"{what} at {pinned.block_address:#x} in a segment of {units.size(pinned.segment_bytes)}"


def composition(session: Session, event: Event) -> tuple[dict[str, int], Optional[int]]:
    """Bytes by category, and None where they are of that instant; else how many steps were completed then.

    Few steps are looked at. In another one most of what is new has no known owner: then one like it tells more, at a
    like place of it.
    """
    look = event.failure.classification if event.failure is not None else None
    if look is not None and _unknown_share(look) <= _UNKNOWN_SHARE:
        return _known(look), None
    if look is not None and event.failure is not None and event.failure.undecided_bytes:
        return _known(look), None
    held = event.figures.get("allocated_bytes", 0)
    like = [
        each
        for each, at_ns in session.looks(event.device or "")
        if at_ns <= event.time_ns and each.step < event.step and _unknown_share(each) <= _UNKNOWN_SHARE
        if _place(each.phase) == _place(event.phase)
    ]
    nearest = min(like, key=lambda each: abs(each.allocated_bytes - held), default=None)
    if nearest is not None and nearest.allocated_bytes >= _LIKE * held:
        return _known(nearest), nearest.step
    return ({}, None) if look is None else (_known(look), None)


def _place(phase: str) -> str:
    """Activations are there from the forward to the backward."""
    return "forward" if phase == "backward" else phase


def _known(look: Classification) -> dict[str, int]:
    return {name: size for name, size in look.categories.items() if size > 0}


def _unknown_share(look: Classification) -> float:
    return look.categories.get("unattributed", 0) / look.allocated_bytes if look.allocated_bytes else 0.0


def _births_known(failure: Failure) -> bool:
    """Whether most of what has no owner was seen to be born; what the phase under way has made is no mystery."""
    look = failure.classification
    if look is None or not look.allocated_bytes:
        return False
    mystery = look.categories.get("unattributed", 0) - failure.undecided_bytes
    return mystery <= _UNKNOWN_SHARE * look.allocated_bytes


def _is_first(session: Session, event: Event) -> bool:
    """Whether no optimizer had made its state yet, and there is one that makes any."""
    since_ns = session.steps.state_since_ns
    if event.phase != "optimizer" or event.step or (since_ns is not None and since_ns < event.time_ns):
        return False
    state = optimizer_state(session, event.device or "")
    return state is None or state.state_bytes > 0


def _whole_state(session: Session, device: str) -> Optional[int]:
    state = optimizer_state(session, device)
    return None if state is None or state.kind != "predicted" else state.state_bytes


def _to_come(session: Session, event: Event, failure: Failure) -> Optional[int]:
    """What the optimizer's first step was still to keep, where it is known how much it has made."""
    state = optimizer_state(session, event.device or "")
    if state is None or state.kind != "predicted" or not failure.undecided_bytes:
        return None
    return max(0, state.state_bytes - failure.undecided_bytes)


def _growing(session: Session, device: str, leak: Leak) -> str:
    """The category that grew most between looks at the same place of two steps of the leak."""
    looks = [look for look, _ in session.looks(device) if look.phase == "forward" and look.step >= leak.first_step]
    if len(looks) < 2 or looks[-1].step == looks[0].step:
        return ""
    first, last = looks[0], looks[-1]
    grown = {name: last.categories.get(name, 0) - first.categories.get(name, 0) for name in CATEGORIES}
    name = max(grown, key=lambda each: grown[each])
    return name if grown[name] > 0 and name != "unattributed" else ""


def _larger(session: Session, event: Event) -> Optional[Larger]:
    """Inputs of more bytes than any before, where this step was looked at."""
    now = event.failure.classification if event.failure is not None else None
    if now is None or event.phase not in ("forward", "backward"):
        return None
    size = now.categories.get("inputs", 0)
    before = [
        look.categories.get("inputs", 0)
        for look, at_ns in session.looks(event.device or "")
        if look.step < event.step and look.phase in ("forward", "backward") and at_ns < event.time_ns
    ]
    most = max(before, default=0)
    return Larger(size, most, "bytes of inputs") if most and size >= _LARGER * most else None


def _outgrown(session: Session, event: Event) -> Optional[Outgrown]:
    """A step that needs more than any before it did."""
    peak = session.steps.highest(event.device or "")
    allocated, asked = event.figures.get("allocated_bytes"), event.figures.get("asked_bytes")
    if peak is None or allocated is None or asked is None or event.phase not in ("forward", "backward"):
        return None
    if event.step < _FEWEST_STEPS or peak.step > event.step or allocated + asked < _MORE * peak.bytes_held:
        return None
    return Outgrown(allocated + asked, peak.bytes_held, event.step)
