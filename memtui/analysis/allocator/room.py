"""What a simulated allocator could still give, without asking it."""

from __future__ import annotations

from typing import Optional

from . import expandable
from .blocks import FREE, FreeBlocks
from .caching import DEFAULT_STREAM, CachingAllocator
from .settings import SMALL_BYTES, UNIT_BYTES
from .snapshot import restored, stretches

_LARGEST_POWER = 46


class Room:
    """What could be had at this moment, once all that is cached was given back where that is needed."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self._allocator = allocator
        self.released = copied(allocator)
        self.released.empty_cache()

    def would_fit(self, asked_bytes: int, stream: int = DEFAULT_STREAM) -> bool:
        """Whether a block of so many bytes could be allocated; exact where the capacity is known."""
        allocator = self._allocator
        size = allocator.settings.rounded(asked_bytes)
        home = allocator.home(stream, small=size <= SMALL_BYTES)
        if allocator.fitting(home, size) is not None or grows(allocator, home, size):
            return True
        return grows(self.released, self.released.home(stream, small=size <= SMALL_BYTES), size)

    def largest_bytes(self, stream: int = DEFAULT_STREAM) -> Optional[int]:
        """The largest block that could be allocated, in steps of 512 bytes; 0 where there is room for none.

        None where the capacity is not known.
        """
        if self._allocator.capacity_bytes is None and self._allocator.allowed_bytes is None:
            return None
        least, most = 0, (1 << _LARGEST_POWER) // UNIT_BYTES
        while most - least > 1:
            middle = (least + most) // 2
            if self.would_fit(middle * UNIT_BYTES, stream):
                least = middle
            else:
                most = middle
        return least * UNIT_BYTES

    def scattered_bytes(self) -> int:
        """Free bytes in segments that cannot go back to the device, for something in each is live."""
        return sum(block.size_bytes for block in self.released.blocks() if block.state == FREE)


def copied(allocator: CachingAllocator) -> CachingAllocator:
    """Another one with the same memory."""
    copy, _ = restored(
        stretches(allocator),
        allocator.settings,
        capacity_bytes=allocator.capacity_bytes,
        allowed_bytes=allocator.allowed_bytes,
        total_bytes=allocator.total_bytes,
    )
    return copy


def grows(allocator: CachingAllocator, home: FreeBlocks, size: int) -> bool:
    """Whether the device could give what a block of this size needs."""
    spare = spare_bytes(allocator)
    segment_bytes, wanted = needed_bytes(allocator, home, size)
    within = allocator.allowed_bytes is None or allocator.reserved_bytes + segment_bytes <= allocator.allowed_bytes
    return within and (spare is None or wanted <= spare)


def spare_bytes(allocator: CachingAllocator) -> Optional[int]:
    """What the device can still give; None where that is not known."""
    return None if allocator.capacity_bytes is None else allocator.capacity_bytes - allocator.reserved_bytes


def needed_bytes(allocator: CachingAllocator, home: FreeBlocks, size: int) -> tuple[int, int]:
    """What is counted against the process's own limit for a block of this size, and what the device must give."""
    segment_bytes = wanted = allocator.settings.segment_bytes(size)
    if allocator.settings.expandable_segments:
        page_bytes = allocator.settings.page_bytes(small=home.pool.small)
        wanted = expandable.missing_bytes(expandable.candidate(home, size), size, page_bytes)
    return segment_bytes, wanted
