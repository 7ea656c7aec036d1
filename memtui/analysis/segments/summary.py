"""What a device's segments come to: how much is pinned and by what, and the largest requests that would succeed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Optional

from memtui.analysis.allocator.fits import Fit, Fits
from memtui.analysis.allocator.versions import tie_rules
from memtui.analysis.forecast import beside_allocator_bytes
from memtui.analysis.ladder import build_ladder
from memtui.analysis.policy import DEFAULT, Policy
from memtui.session.session import Session
from memtui.wire.frames import Segments

from .space import Limits, Segment, allocator_of, read_segments, usual_stream, with_pins


@dataclass(frozen=True)
class Largest:
    """The largest requests that would succeed; None where it is not known what the device has."""

    cached_bytes: int  # from a free block
    new_bytes: Optional[int]  # from the device, as it is
    bytes_at_all: Optional[int]  # once what is cached went back


class Space:
    """One device's segments at one instant, with what can be said of them."""

    def __init__(self, told: Segments, limits: Limits) -> None:
        """Raises ValueError where the message makes no sense."""
        self.told = told
        found = read_segments(told)
        try:
            allocator = allocator_of(told, found, limits)
        except (AttributeError, TypeError) as error:  # of settings, which are whatever torch said
            raise ValueError(f"the allocator's settings: {error}") from None
        self.fits = Fits(allocator, usual_stream(found))
        self.segments: tuple[Segment, ...] = with_pins(found, self.fits.released)

    @cached_property
    def reserved_bytes(self) -> int:
        """All of it, with what was left out."""
        return sum(segment.size_bytes for segment in self.segments) + self.told.others_bytes

    @cached_property
    def pinned_bytes(self) -> int:
        """Free, and cannot go back to the device."""
        return sum(segment.stuck_bytes for segment in self.segments)

    @cached_property
    def pinned_segments(self) -> int:
        """In how many segments."""
        return sum(segment.stuck_bytes > 0 for segment in self.segments)

    @cached_property
    def pinning_blocks(self) -> int:
        """By how many blocks."""
        return sum(segment.pinning for segment in self.segments)

    @cached_property
    def returnable_bytes(self) -> int:
        """What empty_cache would give back."""
        return self.fits.returnable_bytes

    @cached_property
    def pool_idle_bytes(self) -> int:
        """Free in the pools of CUDA graphs and MemPools."""
        return sum(segment.bytes_of("free") for segment in self.segments if segment.private)

    @cached_property
    def pending_bytes(self) -> int:
        """Freed by the program, and another stream may still use it."""
        return sum(segment.bytes_of("pending") for segment in self.segments)

    @cached_property
    def largest(self) -> Largest:
        """The largest requests that would succeed."""
        return Largest(self.fits.largest_cached_bytes, self.fits.largest_new_bytes, self.fits.largest_bytes)

    def ask(self, asked_bytes: int) -> Fit:
        """What would come of a request."""
        return self.fits.ask(asked_bytes)


def limits_of(session: Session, device: str, now_ns: int, policy: Policy = DEFAULT) -> Limits:
    """What is known of a device's limits at an instant.

    While the driver and the allocator were only read at moments between which memory was taken or given back, nobody
    knows what the device has left for it.
    """
    ladder = build_ladder(session, device, now_ns, policy)
    beside = beside_allocator_bytes(ladder) if ladder.settled else None
    capacity = None if beside is None or ladder.reach_bytes is None else max(0, ladder.reach_bytes - beside)
    torch = "" if session.hello is None else session.hello.torch
    return Limits(capacity, ladder.allowed_bytes, ladder.total_bytes, tie_rules(torch)[0])
