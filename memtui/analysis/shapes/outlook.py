"""The peaks of a session at other sizes of its batches: the largest that was seen, and one that the user names."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Optional

from memtui.analysis import units
from memtui.analysis.text import clean
from memtui.session.readings import ShapeForecast
from memtui.wire.frames import RecordedStep

from .asked import TOKEN_BYTES, AskedShape
from .scaled import Refused, Shapes, check, own_error_percent, peaks_at, shapes_of, steps_text
from .sequence import sizes

#: Steps whose requests differ by less than this are of one size, and nobody is told why their batches are not foretold.
_DIFFERENCE = 1 / 64
#: A peak that is higher than the largest recorded step's by less than this says nothing of a larger batch.
_HIGHER = 1.01
#: Why the size that is asked for is not foretold.
UNRECORDED = "no step is recorded so far, and two of different sizes are needed"
UNTOLD = "the recorded steps tell nothing of the allocator's memory"


def outlook(
    recorded: Sequence[RecordedStep],
    asked: Optional[AskedShape] = None,
    *,
    highest_bytes: Optional[int] = None,
    capacity_bytes: Optional[int] = None,
    total_bytes: Optional[int] = None,
) -> Generator[None, None, list[ShapeForecast]]:
    """For the recorded steps of one device; gives way now and then. `highest_bytes` is the highest step's peak so far.

    Nothing where all steps are of one size and nobody asks.
    """
    if not recorded or not (asked or _differ(recorded)):
        return []
    newest = max(recorded, key=lambda each: each.time_ns)
    when, device, found = newest.time_ns + newest.duration_ns, newest.device, []
    wanted = ([AskedShape("", factor=1.0)] if _differ(recorded) else []) + ([asked] if asked else [])
    try:
        shapes = yield from shapes_of(recorded)
        error = yield from own_error_percent(shapes)
    except Refused as refusal:
        return [ShapeForecast(when, device, each.text, reason=str(refusal)) for each in wanted]
    for each in wanted:
        by_peak = False
        try:
            scale = each.scale(shapes.input_law)
            if not each.text and highest_bytes is not None and _seen_higher(shapes, highest_bytes):
                scale, by_peak = shapes.scale_of_peak(highest_bytes), True
            check(shapes, scale)
        except Refused as refusal:
            found.append(ShapeForecast(when, device, each.text, reason=str(refusal)))
            continue
        peaks = yield from peaks_at(shapes, shapes.at(scale), capacity_bytes=capacity_bytes, total_bytes=total_bytes)
        law, fits = shapes.input_law, peaks.failed_bytes is None
        found.append(
            ShapeForecast(
                when,
                device,
                each.text,
                peaks.allocated_bytes if fits else None,
                peaks.reserved_bytes if fits else None,
                scale,
                None if law is None else law(scale),
                by_peak,
                peaks.failed_bytes,
                steps_text(shapes),
                error,
            )
        )
    return found


def outlook_now(
    recorded: Sequence[RecordedStep], asked: Optional[AskedShape] = None, *, highest_bytes: Optional[int] = None
) -> list[ShapeForecast]:
    """All of it at once, on a device without a limit."""
    under_way = outlook(recorded, asked, highest_bytes=highest_bytes)
    while True:
        try:
            next(under_way)
        except StopIteration as end:
            found: list[ShapeForecast] = end.value
            return found


def unforeseen(device: str, asked: AskedShape, time_ns: int, reason: str = UNRECORDED) -> ShapeForecast:
    """That nothing can be said of the size that is asked for, and why."""
    return ShapeForecast(time_ns, device, asked.text, reason=reason)


def shape_lines(forecasts: Sequence[ShapeForecast]) -> tuple[str, ...]:
    """The same in words, each line one fact."""
    lines = []
    asked = {found.reason for found in forecasts if found.asked}
    for found in forecasts:
        if found.reason and not found.asked and found.reason in asked:
            continue
        if found.reason:
            which = f"a batch of {_named(found.asked)}" if found.asked else "batches of other sizes"
            lines.append(f"no prediction for {which}: {clean(found.reason, 300)}")
            continue
        verdict = "" if found.failed_bytes is None else " would not fit"
        lines.append(f"{_batch(found)}{verdict}: {_peaks(found)}")
    return tuple(lines)


def _peaks(found: ShapeForecast) -> str:
    if found.failed_bytes is not None:
        return f"a request of {units.size(found.failed_bytes)} fails, predicted{_basis(found)}"
    sizes_text = f"allocated {units.size(found.allocated_bytes)}, reserved {units.size(found.reserved_bytes)}"
    return f"peak {sizes_text} predicted{_basis(found)}"


def _basis(found: ShapeForecast) -> str:
    parts = [f"each block's size fitted over {clean(found.basis, 60)}"]
    if found.own_error_percent is not None:
        parts.append(f"the largest foretold by the smaller ones {found.own_error_percent:+.1f} % off")
    return ": " + ", ".join(parts)


def _batch(found: ShapeForecast) -> str:
    size = f"{units.size(found.input_bytes)} of input" if found.input_bytes is not None else ""
    if size and found.by_peak:
        size = f"about {size}"
    elif found.input_bytes is not None and not found.input_bytes % TOKEN_BYTES:
        size += f", {found.input_bytes // TOKEN_BYTES:,} x {TOKEN_BYTES} bytes"
    times = f"{found.factor:.2f} times the largest recorded" if found.factor is not None and found.factor != 1 else ""
    if found.by_peak:
        times += " by its peak"
    tokens = found.asked.replace(",", "").isdigit()
    what = f"a batch of {_named(found.asked)}" if found.asked else "the largest batch seen"
    parts = [times] if tokens else [size, times]
    told = "; ".join(part for part in parts if part)
    return f"{what} ({told})" if told else what


def _named(asked: str) -> str:
    text = clean(asked, 20)
    return f"{int(text.replace(',', '')):,} tokens of {TOKEN_BYTES} bytes" if text.replace(",", "").isdigit() else text


def _differ(recorded: Sequence[RecordedStep]) -> bool:
    totals = [sum(sizes(each)[1]) for each in recorded if each.heap is not None]
    return len(totals) > 1 and max(totals) - min(totals) > _DIFFERENCE * max(totals)


def _seen_higher(shapes: Shapes, highest_bytes: int) -> bool:
    return highest_bytes > _HIGHER * shapes.allocated_bytes(1.0)[0]
