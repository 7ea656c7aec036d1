"""What a recorded step comes to when it is done again and again: the steady peaks, and a request that would fail."""

from __future__ import annotations

from typing import Optional

from memtui.session.readings import SteadyStep
from memtui.session.session import Session
from memtui.session.steps import step_number
from memtui.wire.frames import DeviceFrame, RecordedStep

from . import units
from .allocator.replay import Replayed
from .errors import Interval

#: Floors, and steps between them, that a growth is confirmed by.
_FLOORS, _STEPS = 3, 5


def steady(recorded: RecordedStep, replayed: Replayed, frame: Optional[DeviceFrame] = None) -> SteadyStep:
    """The peaks, and what they rest on; with the peaks that `frame` has counted."""
    parts = [f"step {step_number(recorded.step):,} done again by the allocator's rules"]
    if not replayed.exact:
        parts.append(f"{replayed.same_place:,} of its {replayed.compared:,} allocations where they were")
    failure = replayed.failure
    if not replayed.steady and failure is None:
        parts.append(f"still rising after {len(replayed.steps)} steps")
    return SteadyStep(
        recorded.time_ns + recorded.duration_ns,
        recorded.device,
        recorded.step,
        replayed.peak_allocated_bytes,
        replayed.peak_reserved_bytes,
        replayed.exact and replayed.steady,
        ", ".join(parts),
        replayed.growth_bytes,
        None if failure is None else failure.step,
        None if failure is None else failure.asked_bytes,
        None if failure is None else failure.free_bytes,
        None if frame is None else frame.allocated_peak_bytes,
        None if frame is None else frame.reserved_peak_bytes,
    )


def confirmed_growth_bytes(session: Session, device: str) -> Optional[int]:
    """What each step leaves behind, where a step that was done again says that and the steps since then did it.

    Measured at the beginnings of forwards; None where either does not say so, or too few steps were read.
    """
    found, floors = session.steady_step(device), session.floors(device)
    if found is None or floors is None or found.growth_bytes <= 0:
        return None
    since = [floor for floor in floors.levels[0] if floor.step > found.step]
    if len(since) < _FLOORS or since[-1].step - since[0].step < _STEPS:
        return None
    measured = (since[-1].allocated_bytes - since[0].allocated_bytes) // (since[-1].step - since[0].step)
    return measured if found.growth_bytes <= 2 * measured <= 4 * found.growth_bytes else None


def steady_lines(
    found: SteadyStep,
    reserved_peak_bytes: Optional[int] = None,
    interval: Optional[Interval] = None,
    *,
    over: bool = False,
) -> tuple[str, ...]:
    """The same in words, each line one fact; and whether more was needed since, by the peak that is counted now.

    The interval is that of peaks that are no lower bounds. Once the program is `over` nothing is still to come.
    """
    bound = "" if found.exact else "≥ "
    sure, source = ("", "") if interval is None or bound else (f" {interval.text}", f" · {interval.source}")
    peaks = f"peak allocated {bound}{units.size(found.allocated_bytes)}, reserved {bound}"
    said = "were predicted" if over else "predicted"
    lines = [f"{peaks}{units.size(found.reserved_bytes)}{sure} {said}: {found.basis}{source}"]
    expected = max(found.reserved_bytes, found.reserved_peak_bytes or 0)
    if reserved_peak_bytes is not None and reserved_peak_bytes > expected and not found.growth_bytes:
        lines.append(f"since then {units.size(reserved_peak_bytes)} were reserved: not all steps are like that one")
    if found.growth_bytes:
        lines.append(f"each step {'left' if over else 'leaves'} {units.size(found.growth_bytes)} more behind")
    if not over and found.failing_step is not None and found.asked_bytes is not None:
        when = "in the next step" if found.failing_step == 1 else f"in {found.failing_step} steps"
        line = f"a request of {units.size(found.asked_bytes)} would fail {when}"
        if found.free_bytes is not None and found.free_bytes >= found.asked_bytes:
            line += f", though {units.size(found.free_bytes)} would be free: in pieces, none of them large enough"
        lines.append(line)
    return tuple(lines)
