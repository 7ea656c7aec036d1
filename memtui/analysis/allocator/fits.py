"""What an allocator would do with a request at this moment: from its cache, from the device, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Optional

from . import expandable
from .blocks import FREE, UNMAPPED, Block, FreeBlocks
from .caching import DEFAULT_STREAM, CachingAllocator
from .room import Room, copied, grows, needed_bytes, spare_bytes
from .settings import SMALL_BYTES, UNIT_BYTES

#: From a free block; from the device, as it is; only after free segments went back to the device; it hangs on where a
#: range of addresses begins and ends; not; not known.
How = Literal["cache", "driver", "returned", "perhaps", "no", "unknown"]
_MOST_BYTES = 1 << 46


@dataclass(frozen=True)
class Fit:
    """The answer for `asked_bytes`: the free block's bytes, else what the device must give, and how much is missing."""

    asked_bytes: int
    how: How
    block_bytes: int = 0
    new_bytes: int = 0
    short_bytes: int = 0


class Fits:
    """Answers by the allocator's own rules; what waits for another stream counts as free, as by its next request.

    `stream` is the one that asks: no other stream's blocks are given to it. Where a range of addresses of an expandable
    segment begins and ends is not known of an allocator that was restored from what torch tells: what hangs on that is
    answered with "perhaps", and the largest requests are such as succeed in any case.
    """

    def __init__(self, allocator: CachingAllocator, stream: int = DEFAULT_STREAM) -> None:
        self._allocator, self._stream = copied(allocator), stream
        self._allocator.finish_events()
        self._room = Room(self._allocator)
        self._known = allocator.capacity_bytes is not None or allocator.allowed_bytes is not None

    @property
    def released(self) -> CachingAllocator:
        """What would be left once all that can go back to the device has."""
        return self._room.released

    def ask(self, asked_bytes: int) -> Fit:
        """What would come of it."""
        allocator, released = self._allocator, self._room.released
        size = allocator.settings.rounded(asked_bytes)
        home = self._home(allocator, size)
        block = allocator.fitting(home, size)
        if block is not None:
            return Fit(asked_bytes, "cache", block_bytes=block.size_bytes)
        _, wanted = needed_bytes(allocator, home, size)
        if not self._known:
            return Fit(asked_bytes, "unknown", new_bytes=wanted)
        now, later = self._given(allocator, size), self._given(released, size)
        if now or later:
            if grows(allocator, home, size):
                return Fit(asked_bytes, "driver", new_bytes=wanted)
            return Fit(asked_bytes, "returned", new_bytes=needed_bytes(released, self._home(released, size), size)[1])
        segment_bytes, wanted = needed_bytes(released, self._home(released, size), size)
        if now is None or later is None:
            return Fit(asked_bytes, "perhaps", new_bytes=wanted)
        spare, missing = spare_bytes(released), []
        if spare is not None:
            missing.append(wanted - spare)
        if released.allowed_bytes is not None:
            missing.append(released.reserved_bytes + segment_bytes - released.allowed_bytes)
        return Fit(asked_bytes, "no", new_bytes=wanted, short_bytes=max(missing))

    @property
    def largest_cached_bytes(self) -> int:
        """The largest request that a free block satisfies, in steps of 512 bytes; 0 where there is none."""
        return self._largest(lambda size, home: self._allocator.fitting(home, size) is not None)

    @property
    def largest_new_bytes(self) -> Optional[int]:
        """The largest that the device satisfies as it is; None where it is not known what that has."""
        return self._largest(lambda size, _: self._given(self._allocator, size) is True) if self._known else None

    @property
    def largest_bytes(self) -> Optional[int]:
        """The largest that can be had at all, once what is cached went back where that is needed; None as above."""
        if not self._known:
            return None
        allocator, released = self._allocator, self._room.released
        return self._largest(
            lambda size, home: (
                allocator.fitting(home, size) is not None
                or self._given(allocator, size) is True
                or self._given(released, size) is True
            )
        )

    @property
    def returnable_bytes(self) -> int:
        """What empty_cache would give back."""
        return self._allocator.reserved_bytes - self._room.released.reserved_bytes

    def _given(self, allocator: CachingAllocator, size: int) -> Optional[bool]:
        """Whether the device gives what a block of this size needs; None where that hangs on a range of addresses."""
        home, spare = self._home(allocator, size), spare_bytes(allocator)
        segment_bytes, wanted = needed_bytes(allocator, home, size)
        if allocator.allowed_bytes is not None and allocator.reserved_bytes + segment_bytes > allocator.allowed_bytes:
            return False
        if spare is None:
            return True
        least, most = wanted, wanted
        if allocator.settings.expandable_segments:
            page_bytes = allocator.settings.page_bytes(small=home.pool.small)
            most = max(wanted, expandable.missing_bytes(None, size, page_bytes))
            least = min(wanted, most - max((_leading(block) for block in _first(home)), default=0))
        if (least <= spare) != (most <= spare):
            return None
        return most <= spare

    def _home(self, allocator: CachingAllocator, size: int) -> FreeBlocks:
        return allocator.home(self._stream, small=size <= SMALL_BYTES)

    def _largest(self, succeeds: Callable[[int, FreeBlocks], bool]) -> int:
        """The largest request that succeeds. Between two marks, if one succeeds then so does each smaller one."""

        def asked(units: int) -> bool:
            size = self._allocator.settings.rounded(units * UNIT_BYTES)
            return size <= _MOST_BYTES and succeeds(size, self._home(self._allocator, size))

        marks = sorted({0, *(mark // UNIT_BYTES for mark in self._marks() if mark > 0), _MOST_BYTES // UNIT_BYTES})
        for least, most in reversed(list(zip(marks, marks[1:]))):
            if not asked(least + 1):
                continue
            low, high = least + 1, most + 1
            while high - low > 1:
                middle = (low + high) // 2
                if asked(middle):
                    low = middle
                else:
                    high = middle
            return low * UNIT_BYTES
        return 0

    def _marks(self) -> Iterable[int]:
        """Sizes from which on another rule, another pool or another place is decisive."""
        settings = self._allocator.settings
        yield SMALL_BYTES
        if settings.max_split_bytes is not None:
            yield settings.max_split_bytes - UNIT_BYTES
            for allocator in (self._allocator, self._room.released):
                for *_, block in self._home(allocator, SMALL_BYTES + 1).blocks:
                    yield block.size_bytes
                    yield block.size_bytes - settings.max_non_split_rounding_bytes
        if settings.expandable_segments:
            for allocator in (self._allocator, self._room.released):
                for size in (SMALL_BYTES, SMALL_BYTES + 1):
                    yield from _runs(self._home(allocator, size))


def _first(home: FreeBlocks) -> Iterable[Block]:
    """Free blocks at the beginning of an expandable segment, before which there may be addresses without memory."""
    return (block for *_, block in home.blocks if block.segment.expandable and block.previous is None)


def _leading(block: Optional[Block]) -> int:
    """The memory at the beginning that a larger block could take."""
    found = 0
    while block is not None and block.state in (FREE, UNMAPPED):
        found += block.size_bytes if block.state == FREE else 0
        block = block.next
    return found


def _runs(home: FreeBlocks) -> Iterable[int]:
    """The bytes of addresses that a block could get at each place of expandable segments."""
    for _, unmapped in home.unmapped:
        first = unmapped if unmapped.previous is None or unmapped.previous.state != FREE else unmapped.previous
        found, block = 0, first
        while block is not None and block.state in (FREE, UNMAPPED):
            found += block.size_bytes
            block = block.next  # type: ignore[assignment]
        yield found
