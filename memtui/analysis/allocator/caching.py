"""Torch's CUDACachingAllocator of one device, followed rule by rule: its native form, not cudaMallocAsync.

Compared with torch 2.14 itself, operation by operation, by tests/virtual_gpu/test_allocator.py, and over 10,000 random
programs by tests/bench/allocator.py. Up to torch 2.11 nothing is given back for a MemPool's allocation, which is not
followed; nor are MemPools with an allocator of their own, without splitting, or lent in need (`use_on_oom`), and the
settings throw_on_cudamalloc_oom and graph_capture_record_stream_reuse.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Optional

from . import expandable
from .blocks import FREE, LIVE, PENDING, Block, FreeBlocks, Pool, PrivatePool, Segment
from .settings import SMALL_BYTES, UNIT_BYTES, Settings

#: The stream of a program that makes none.
DEFAULT_STREAM = 0
#: Torch's words for no private pool.
NO_POOL = (0, 0)
#: Given out by devices in steps of this.
_ADDRESS_UNIT = 2 << 20
_FIRST_ADDRESS = 1 << 44
_UNLIMITED = 1 << 62

#: Where a device puts a segment of so many bytes.
Place = Callable[[int], int]


class OutOfMemory(Exception):
    """A request that neither a free block nor the device could satisfy, after all that is cached was given back."""

    def __init__(self, asked_bytes: int, segment_bytes: int) -> None:
        super().__init__(f"{segment_bytes} bytes are not to be had for a block of {asked_bytes}")
        self.asked_bytes, self.segment_bytes = asked_bytes, segment_bytes


class CachingAllocator:
    """Blocks, segments and counters of one device.

    `capacity_bytes` is what the device can give this allocator, None where that is not known: as much as is asked for;
    `allowed_bytes` what set_per_process_memory_fraction leaves it, None where that is all; `total_bytes` the device's
    memory, by which the addresses of expandable segments are reserved. Of equally large blocks that of the oldest
    segment is taken, and not `by_age`, in older torch, that at the lowest address: tie_rules. `place` tells where the
    device puts segments, without it each is above the one before; it also decides which of one stream's expandable
    segments grows first.
    """

    def __init__(
        self,
        settings: Settings = Settings(),  # noqa: B008 - it is frozen
        *,
        capacity_bytes: Optional[int] = None,
        allowed_bytes: Optional[int] = None,
        total_bytes: Optional[int] = None,
        by_age: bool = True,
        place: Optional[Place] = None,
    ) -> None:
        self.settings = settings
        self.capacity_bytes, self.allowed_bytes, self.total_bytes = capacity_bytes, allowed_bytes, total_bytes
        self.allocated_bytes = self.peak_allocated_bytes = 0
        self.reserved_bytes = self.peak_reserved_bytes = 0
        self.num_alloc_retries = self.num_ooms = 0
        self.small, self.large = Pool(small=True), Pool(small=False)
        self.private: dict[tuple[int, int], PrivatePool] = {}
        #: The pool of the graph that is being captured: until that ends nothing is given back to the device for it.
        self.capturing: Optional[tuple[int, int]] = None
        self.segments: dict[int, Segment] = {}  # by address
        self._place = place or self._above_the_last
        self._last_address = _FIRST_ADDRESS
        self._by_age, self._made = by_age, 0
        self._pending: list[Block] = []
        self._collects = allowed_bytes is not None and settings.garbage_collection_threshold > 0
        self._max_split_bytes = settings.max_split_bytes or _UNLIMITED
        self._rounded = settings.rounded if settings.roundup_power2_divisions else None
        #: Whether the first block that is large enough is the one to take.
        self._plain = not (self._collects or settings.max_split_bytes or settings.expandable_segments)

    # -- what a program does -----------------------------------------------------------

    def allocate(self, asked_bytes: int, stream: int = DEFAULT_STREAM, pool_id: tuple[int, int] = NO_POOL) -> Block:
        """Torch's malloc: a block for so many bytes, at least one; raises OutOfMemory, and what was cached is gone."""
        if self._pending and pool_id != self.capturing:
            self.finish_events()
        size = ((asked_bytes + 511) & -512 or UNIT_BYTES) if self._rounded is None else self._rounded(asked_bytes)
        pool = self._pool(size, pool_id)
        home = pool.streams.get(stream) or pool.of(stream)
        if self._plain:  # as in _cached, without the rarer rules: most of what a program does
            blocks = home.blocks
            place = bisect_left(blocks, (size,))
            block = blocks.pop(place)[3] if place < len(blocks) else self._grown(home, size, asked_bytes)
        else:
            block = self._cached(home, size) or self._grown(home, size, asked_bytes)
        rest = block.size_bytes - size
        if rest and self._splits(pool.small, size, rest):
            block = self._split(block, size)
        block.state, block.asked_bytes = LIVE, asked_bytes
        allocated = self.allocated_bytes = self.allocated_bytes + block.size_bytes
        if allocated > self.peak_allocated_bytes:  # noqa: PLR1730 - max() would be a third of the time of all this
            self.peak_allocated_bytes = allocated
        return block

    def free(self, block: Block) -> None:
        """Torch's free: at once, or once other streams that use it are done; raises ValueError if it is not live."""
        self.request_free(block)
        if block.streams:
            self._pending.append(block)
        else:
            self.complete_free(block)

    def request_free(self, block: Block) -> None:
        """The program has freed a block that another stream still uses: free_requested."""
        if block.state != LIVE:
            raise ValueError("the block is not allocated")
        self.allocated_bytes -= block.size_bytes
        block.state = PENDING

    def complete_free(self, block: Block) -> None:
        """It is free, and becomes one with free neighbours: free_completed, by free_block and try_merge_blocks."""
        home, age = block.home, block.segment.age
        blocks = home.blocks
        previous, following = block.previous, block.next
        if previous is not None and previous.state == FREE:
            del blocks[bisect_left(blocks, (previous.size_bytes, age, previous.address))]
            block.swallow_previous()
        if following is not None and following.state == FREE:
            del blocks[bisect_left(blocks, (following.size_bytes, age, following.address))]
            block.swallow_next()
        block.state = FREE
        block.since = home.pool.requests
        insort(blocks, (block.size_bytes, age, block.address, block))

    def record_stream(self, block: Block, stream: int) -> None:
        """Another stream uses a block, as Tensor.record_stream tells: it is not given out again before that is done."""
        if stream != block.stream:
            block.streams = (block.streams or set()) | {stream}

    def finish_events(self) -> None:
        """Other streams are done with all that is pending. How soon is not known: here, by the next allocation."""
        pending, self._pending = self._pending, []
        for block in pending:
            block.streams = None
            self.complete_free(block)

    def empty_cache(self) -> None:
        """Torch's empty_cache: every segment that is free as a whole goes back, and every free page.

        On a stream whose graph is being captured it does nothing.
        """
        if self.capturing is None:
            self._release_all()

    def _release_all(self) -> None:
        self.finish_events()
        for pool in (self.large, self.small):
            self._release(pool)
        for private in self.private.values():
            if private.freeable:
                self._release(private.small)
                self._release(private.large)

    def reset_peaks(self) -> None:
        """The peaks are what there is now."""
        self.peak_allocated_bytes, self.peak_reserved_bytes = self.allocated_bytes, self.reserved_bytes

    def free_pool(self, pool_id: tuple[int, int], *, at_once: bool = False) -> None:
        """Nobody uses a private pool any more: what is free of it can go back to the device from now on.

        Of a MemPool that goes `at_once`, of a graph's when next something is given back.
        """
        pool = self.private.get(pool_id)
        if pool is None:  # nothing was ever allocated from it
            return
        pool.freeable = True
        if at_once:
            self._release(pool.small)
            self._release(pool.large)

    # -- what it begins with ---------------------------------------------------------------

    def home(self, stream: int, *, small: bool, pool_id: tuple[int, int] = NO_POOL) -> FreeBlocks:
        """The free blocks of a stream in one of the pools."""
        return self._pool(SMALL_BYTES if small else SMALL_BYTES + 1, pool_id).of(stream)

    def adopt(self, segment: Segment) -> None:
        """A segment that is there already, the oldest first."""
        segment.age = self._made
        self._made += self._by_age
        self.segments[segment.address] = segment
        self._last_address = max(self._last_address, segment.address + segment.size_bytes)

    def count(self, block: Block) -> None:
        """A block of such a segment."""
        self.reserved_bytes += block.size_bytes
        if block.state == LIVE:
            self.allocated_bytes += block.size_bytes
        elif block.state == PENDING:
            self._pending.append(block)

    # -- finding a block ------------------------------------------------------------------

    def _pool(self, size: int, pool_id: tuple[int, int]) -> Pool:
        if pool_id is NO_POOL or pool_id == NO_POOL:
            return self.small if size <= SMALL_BYTES else self.large
        private = self.private.get(pool_id)
        if private is None:
            private = self.private[pool_id] = PrivatePool(pool_id)
        return private.small if size <= SMALL_BYTES else private.large

    def _cached(self, home: FreeBlocks, size: int) -> Optional[Block]:
        if self._collects:
            home.pool.requests += 1
        block = self.fitting(home, size)
        if block is not None:
            home.take(block)
        return block

    def fitting(self, home: FreeBlocks, size: int) -> Optional[Block]:
        """The free block that would be taken, mostly the smallest that is large enough: get_free_block."""
        blocks = home.blocks
        place = bisect_left(blocks, (size,))  # a shorter tuple is before all that begin as it does
        if place == len(blocks):
            return None
        if self.settings.expandable_segments:
            place = expandable.best_fit(home, place)
        else:
            while place < len(blocks) and blocks[place][3].segment.expandable:  # from before it was switched off
                place += 1
            if place == len(blocks):
                return None
        block, limit = blocks[place][3], self._max_split_bytes
        if size < limit <= block.size_bytes:
            return None  # an oversize block is kept for an oversize request
        if size >= limit and block.size_bytes >= size + self.settings.max_non_split_rounding_bytes:
            return None
        return block

    def _splits(self, small: bool, size: int, rest: int) -> bool:
        """Whether what is left of a block is cut off: should_split."""
        if small or self.settings.expandable_segments:
            return rest >= UNIT_BYTES
        return rest > SMALL_BYTES and size < self._max_split_bytes

    @staticmethod
    def _split(rest: Block, size: int) -> Block:
        home, segment, address, previous = rest.home, rest.segment, rest.address, rest.previous
        block = Block(home, segment, address, size)
        block.next = rest
        if previous is None:
            segment.first = block
        else:
            previous.next, block.previous = block, previous
        rest.previous = block
        rest.address = address = address + size
        rest.size_bytes = left = rest.size_bytes - size
        rest.since = home.pool.requests
        insort(home.blocks, (left, segment.age, address, rest))
        return block

    # -- memory of the device ---------------------------------------------------------------

    def _grown(self, home: FreeBlocks, size: int, asked_bytes: int) -> Block:
        """A block of new memory, for which what is cached is given back in the order in which torch does that."""
        segment_bytes = self.settings.segment_bytes(size)
        if self._collects:
            self._collect_garbage()
        block = self._new(home, size, segment_bytes)
        if block is None and self._release_oversize(home, size):
            block = self._new(home, size, segment_bytes)
        private = home.pool.private
        if block is None and (private is None or private.identity != self.capturing):
            self._release_all()
            self.num_alloc_retries += 1
            block = self._new(home, size, segment_bytes)
        if block is None:
            self.num_ooms += 1
            raise OutOfMemory(asked_bytes, segment_bytes)
        return block

    def _new(self, home: FreeBlocks, size: int, segment_bytes: int) -> Optional[Block]:
        """Torch's alloc_block: a free block that is in no list."""
        if self.allowed_bytes is not None and self.reserved_bytes + segment_bytes > self.allowed_bytes:
            return None
        if self.settings.expandable_segments:
            page_bytes = self.settings.page_bytes(small=home.pool.small)
            first = expandable.candidate(home, size) or self._new_range(home)
            return expandable.grow(first, size, page_bytes, self._claim)
        if not self._claim(segment_bytes):
            return None
        segment = self._segment(segment_bytes)
        segment.first = Block(home, segment, segment.address, segment_bytes)
        return segment.first

    def range_bytes(self, *, small: bool) -> int:
        """The addresses of an expandable segment: 9/8 of the device's memory, so that pages can move to the end."""
        page_bytes = self.settings.page_bytes(small=small)
        wanted = _UNLIMITED >> 8 if self.total_bytes is None else self.total_bytes + self.total_bytes // 8
        return -(-wanted // page_bytes) * page_bytes

    def _new_range(self, home: FreeBlocks) -> Block:
        size_bytes = self.range_bytes(small=home.pool.small)
        return expandable.new_range(home, self._segment(size_bytes, expandable=True))

    def _segment(self, size_bytes: int, *, expandable: bool = False) -> Segment:
        segment = Segment(self._place(size_bytes), size_bytes, expandable=expandable, age=self._made)
        self._made += self._by_age
        self.segments[segment.address] = segment
        return segment

    def _claim(self, size_bytes: int) -> bool:
        if self.capacity_bytes is not None and self.reserved_bytes + size_bytes > self.capacity_bytes:
            return False
        self.reserved_bytes += size_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return True

    def _above_the_last(self, size_bytes: int) -> int:
        address = self._last_address
        self._last_address += -(-size_bytes // _ADDRESS_UNIT) * _ADDRESS_UNIT
        return address

    # -- giving back ---------------------------------------------------------------------------

    def _release(self, pool: Pool) -> None:
        """Torch's release_blocks."""
        page_bytes = self.settings.page_bytes(small=pool.small)
        for home in pool.streams.values():
            free = [block for _, _, _, block in home.blocks]
            for block in free:
                if not block.segment.expandable and block.whole:
                    self._give_back(block)
            for block in free:
                if block.segment.expandable:
                    self.reserved_bytes -= expandable.unmap(block, page_bytes)
                    if block.whole and block.state != FREE:
                        home.take_unmapped(block)
                        del self.segments[block.segment.address]

    def _give_back(self, block: Block) -> None:
        """Torch's release_block."""
        block.home.take(block)
        self.reserved_bytes -= block.size_bytes
        del self.segments[block.segment.address]

    def _release_oversize(self, home: FreeBlocks, size: int) -> bool:
        """Gives back just so much that a request may fit: release_available_cached_blocks, with max_split_size only."""
        limit = self.settings.max_split_bytes
        if limit is None:
            return False
        wanted, released = max(size, limit), 0
        native = [block for _, _, _, block in home.blocks if not block.segment.expandable]
        enough = next((block for block in native if block.size_bytes >= wanted), None)
        if enough is not None:
            self._give_back(enough)
            return True
        while native and released < wanted and native[-1].size_bytes >= limit:
            released += native[-1].size_bytes
            self._give_back(native.pop())
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Gives back the free segments that have waited longest: garbage_collect_cached_blocks."""
        assert self.allowed_bytes is not None
        wanted = self.reserved_bytes - int(self.settings.garbage_collection_threshold * self.allowed_bytes)
        pool = self.large
        waiting = [block for block in _free_of(pool) if block.whole and not block.segment.expandable]
        while wanted > 0 and waiting:
            mean = sum(pool.requests - block.since for block in waiting) / len(waiting)
            old = [block for block in waiting if pool.requests - block.since >= mean]
            for block in old:
                wanted -= block.size_bytes
                self._give_back(block)
            waiting = [block for block in waiting if block not in old]

    # -- what is there ----------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        """Every block, segment by segment in the order of addresses."""
        for address in sorted(self.segments):
            block = self.segments[address].first
            while block is not None:
                yield block
                block = block.next

    def pools(self) -> Iterable[Pool]:
        """All pools."""
        yield from (self.small, self.large)
        for private in self.private.values():
            yield from (private.small, private.large)


def _free_of(pool: Pool) -> Iterator[Block]:
    for home in pool.streams.values():
        for _, _, _, block in home.blocks:
            yield block
