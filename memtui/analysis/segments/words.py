"""What a device's segments come to, in words: for the screen, for a log that is printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from memtui.analysis import units
from memtui.analysis.allocator.fits import Fit
from memtui.analysis.bar import band
from memtui.analysis.text import clean, place_words
from memtui.session.fragments import Fragment

from .space import Segment
from .summary import Space

_NAMED = 3


def space_lines(space: Space, asked_bytes: Optional[int] = None) -> tuple[str, ...]:
    """All of it, each line one fact: for a log that is printed."""
    told = space.told
    lines = [f"segments {place_words(told.phase, told.step)}: {sums_text(space)}", largest_text(space)]
    if space.pinned_bytes:
        lines.append(f"pinned by {pinned_by_text(space.segments)}")
    return (*lines, *([] if asked_bytes is None else [fit_text(space.ask(asked_bytes))]))


def sums_text(space: Space) -> str:
    """How much is held, pinned and by how many, and what could go back."""
    parts = [f"reserved {units.size(space.reserved_bytes)}", f"allocated {units.size(space.told.allocated_bytes)}"]
    parts.append(pinned_text(space))
    parts.append(f"cache {units.size(space.returnable_bytes)} could go back")
    if space.pool_idle_bytes:
        parts.append(f"idle in graph pools {units.size(space.pool_idle_bytes)}")
    if space.pending_bytes:
        parts.append(f"pending free {units.size(space.pending_bytes)}")
    return " · ".join(parts)


def pinned_text(space: Space) -> str:
    """What is free and cannot go back."""
    if not space.pinned_bytes:
        return "nothing pinned"
    where = "1 segment" if space.pinned_segments == 1 else f"{space.pinned_segments:,} segments"
    return f"pinned {units.size(space.pinned_bytes)} in {where} by {_blocks(space.pinning_blocks)}"


def largest_text(space: Space) -> str:
    """The largest requests that would succeed: now, from the cache alone, and with the cache returned."""
    found = space.largest
    if found.bytes_at_all is None or found.new_bytes is None:
        return f"largest request {units.size(found.cached_bytes)} cached; what the driver has is not known"
    now = max(found.cached_bytes, found.new_bytes)
    return (
        f"largest request {units.size(now)} now ({units.size(found.cached_bytes)} cached) · "
        f"{units.size(max(now, found.bytes_at_all))} with cache returned"
    )


def fit_text(fit: Fit) -> str:
    """The answer to a request: yes or no, from where, and what it would take."""
    asked = units.size(fit.asked_bytes)
    if fit.how == "cache":
        return f"{asked}: fits, in a free block of {units.size(fit.block_bytes)}"
    if fit.how == "driver":
        return f"{asked}: fits, with {units.size(fit.new_bytes)} more from the driver"
    if fit.how == "returned":
        return (
            f"{asked}: fits, but only once the cache has gone back (slow: it waits for the device), then with "
            f"{units.size(fit.new_bytes)} from the driver"
        )
    if fit.how == "perhaps":
        return f"{asked}: not certain; it hangs on where PyTorch's range of addresses ends, which it does not tell"
    if fit.how == "no":
        return f"{asked}: does not fit, {units.size(fit.short_bytes)} short even with the cache returned"
    return f"{asked}: no free block is so large; what the driver could give is not known"


def pinned_by_text(segments: Iterable[Segment]) -> str:
    """The blocks that pin most, by name; those without one by category.

    What is pinned in a segment counts in equal parts for all blocks that pin it.
    """
    pins: dict[str, tuple[int, float]] = {}
    for segment in segments:
        share = segment.stuck_bytes / (segment.pinning or 1)
        for piece in segment.pieces:
            if piece.pinning and share:
                label = "pending free" if piece.state == "pending" else band(piece.category, 0).label
                what = f"{clean(piece.name, 100)} ({label})" if piece.name else f"\0{label}"
                count, size = pins.get(what, (0, 0.0))
                pins[what] = count + piece.pinning, size + piece.pinning * share
    found = sorted(pins.items(), key=lambda each: (-each[1][1], each[0]))
    parts = [f"{_pin(what, count)}: {units.size(round(size))}" for what, (count, size) in found[:_NAMED]]
    if len(found) > _NAMED:
        parts.append(f"and {_blocks(sum(count for _, (count, _) in found[_NAMED:]))} more")
    return ", ".join(parts)


def _pin(what: str, count: int) -> str:
    if what.startswith("\0"):
        return f"{_blocks(count)} of {what[1:]}"
    return what if count == 1 else f"{what} x {count:,}"


def segment_text(segment: Segment) -> str:
    """One segment: how large, of which kind, and what is pinned in it by what."""
    kind = "of a CUDA graph or MemPool" if segment.private else "small blocks" if segment.small else ""
    parts = [f"{segment.address:x}"]
    if segment.stuck_bytes:
        parts.append(f"pinned by {pinned_by_text([segment])}")
    parts += [kind] if kind else []
    parts += ["expandable"] if segment.expandable else []
    parts += [f"stream {segment.stream}"] if segment.stream else []
    blocks = sum(piece.blocks for piece in segment.pieces if piece.state == "live")
    parts.append(f"{_blocks(blocks)} live: {units.size(segment.bytes_of('live'))} of {units.size(segment.size_bytes)}")
    return " · ".join(parts)


def trend_text(found: Sequence[Fragment]) -> str:
    """How much was pinned at first, at most and now."""
    if not found:
        return ""
    first, last, most = found[0], found[-1], max(found, key=lambda each: each.pinned_bytes)
    if len(found) == 1:
        return f"{units.size(last.pinned_bytes)} in step {last.step + 1:,}"
    said = (
        f"{units.size(first.pinned_bytes)} in step {first.step + 1:,}, {units.size(last.pinned_bytes)} in step "
        f"{last.step + 1:,}"
    )
    if most.pinned_bytes > max(first.pinned_bytes, last.pinned_bytes):
        said += f", most {units.size(most.pinned_bytes)} in step {most.step + 1:,}"
    return said


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count:,} blocks"
