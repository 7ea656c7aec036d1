"""What happened between two frames of a device, as far as peak counters tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from memtui.wire.frames import DeviceFrame, Frame

from .steps import StepPeak


def peak_between(before: Optional[DeviceFrame], before_step: int, now: DeviceFrame, step: int) -> Optional[int]:
    """The most that was allocated since the previous frame, where a peak counter tells.

    Whenever the lifetime counter changed, its new value was reached in between: by rising, or after a reset. Where it
    did not change, all that is known is that nothing went above it. An exact peak of a step that began since, or that
    is higher than it was at the previous frame, was reached in between too.
    """
    if before is None or now.allocated_peak_bytes is None or before.allocated_peak_bytes is None:
        return None
    reached = [now.allocated_peak_bytes] if now.allocated_peak_bytes != before.allocated_peak_bytes else []
    for peak_bytes, of_step, exact in (
        (now.step_peak_bytes, step + 1, now.step_peak_exact),
        (now.last_step_peak_bytes, now.last_step_peak_step or step, now.last_step_peak_exact),
        (now.highest_step_peak_bytes, now.highest_step_peak_step or 0, True),
    ):
        if peak_bytes is None or not exact or of_step <= before_step:
            continue
        if of_step > before_step + 1 or peak_bytes > (before.step_peak_bytes or 0):
            reached.append(peak_bytes)
    return max(reached, default=None)


def peaks_of_ended(now: Frame) -> Iterator[StepPeak]:
    """Of the step that has ended with this frame, where it says them."""
    for device in now.devices:
        held = device.last_step_peak_bytes
        if held is not None and device.last_step_peak_step in (None, now.step):
            yield StepPeak(device.device, now.step, held, device.last_step_peak_exact, device.last_step_peak_phase)


def peaks_between(before: Frame, now: Frame) -> Iterator[tuple[StepPeak, Optional[int]]]:
    """Peaks of steps that ended in between but not with this frame, and since when such a step ran, if known.

    A viewer that comes late is sent few of the old frames, and hardly ever the one that a step ended with.
    """
    for device in now.devices:
        held, step = device.last_step_peak_bytes, device.last_step_peak_step
        if held is None or step is None or not before.step < step < now.step:
            continue
        # The one that was under way then; any other began later.
        since_ns = before.step_since_ns if step == before.step + 1 else before.time_ns
        yield StepPeak(device.device, step, held, device.last_step_peak_exact, device.last_step_peak_phase), since_ns
