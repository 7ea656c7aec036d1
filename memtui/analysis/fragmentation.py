"""What the allocator holds and cannot use, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from memtui.session.session import Session

from . import units
from .ladder import Ladder
from .policy import Policy


@dataclass(frozen=True)
class Holes:
    """Free bytes that a live neighbour pins in a segment: `empty_cache()` cannot give them back."""

    pinned_bytes: int = 0
    segments: Optional[int] = None
    age_ns: Optional[int] = None


def find_holes(session: Session, device: str) -> Holes:
    """Pinned free bytes: by the blocks where they were read, else by the allocator's counter."""
    frame, blocks = session.device_frame(device), session.blocks(device)
    counted = None if frame is None else frame.inactive_split_bytes
    if blocks is not None and session.frame is not None:
        summary, measured_ns = blocks
        # Under expandable segments the counter reads 0 whatever the holes: only the blocks tell.
        if not counted:
            return Holes(summary.inactive_split_bytes, summary.num_pinned_segments, session.frame.time_ns - measured_ns)
        return Holes(counted, summary.num_pinned_segments)
    return Holes(counted or 0)


def fragmentation_lines(session: Session, device: str, ladder: Ladder, holes: Holes, policy: Policy) -> tuple[str, ...]:
    """The indicators in one line, and in a second one what they mean where they mean something."""
    frame = session.device_frame(device)
    if frame is None or ladder.reserved_bytes is None or ladder.allocated_bytes is None:
        return ()
    if ladder.is_host:
        free = ladder.reserved_bytes - ladder.allocated_bytes
        return (f"free inside malloc {units.size(free)} of {units.size(ladder.reserved_bytes)}",)
    where = f" in {holes.segments:,} segments" if holes.segments else ""
    found = session.blocks(device)
    known = frame.inactive_split_bytes is not None or found is not None
    parts = [f"pinned {units.size(holes.pinned_bytes) if known else units.UNKNOWN}{where}"]
    if found is not None and session.frame is not None:
        age = session.frame.time_ns - found[1]
        stale = f", {units.duration(age)} ago" if age > policy.old_classification_ns else ""
        parts.append(f"largest free block {units.size(found[0].largest_free_block_bytes)}{stale}")
    if ladder.reserved_bytes:
        parts.append(f"allocated {units.percent(ladder.allocated_bytes, ladder.reserved_bytes)} of reserved")
    if frame.num_alloc_retries is not None:
        parts.append(f"retries {frame.num_alloc_retries:,}")
    if frame.num_ooms is not None:
        parts.append(f"ooms {frame.num_ooms:,}")
    lines = [" · ".join(parts)]
    if holes.pinned_bytes > policy.holes_share * ladder.reserved_bytes and found is not None:
        largest = found[0].largest_free_block_bytes
        lines.append(
            f"a request above {units.size(largest)} needs the driver: pinned holes cannot be given back or joined"
        )
    return tuple(lines)
