"""The allocator's blocks, in their segments and in the lists of free ones."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Optional

#: What a block is. Pending ones are freed by the program, and another stream may still use them; unmapped ones are
#: addresses of an expandable segment that have no memory.
FREE, LIVE, PENDING, UNMAPPED = range(4)


class Pool:
    """Torch's BlockPool: the small or the large blocks, of the process or of one private pool."""

    __slots__ = ("private", "requests", "small", "streams")

    def __init__(self, *, small: bool, private: Optional[PrivatePool] = None) -> None:
        self.small = small
        self.private = private
        self.streams: dict[int, FreeBlocks] = {}
        self.requests = 0  # get_free_blocks_call_count, for the age of blocks

    def of(self, stream: int) -> FreeBlocks:
        """The free blocks of one stream: no other one is given them."""
        found = self.streams.get(stream)
        if found is None:
            found = self.streams[stream] = FreeBlocks(self, stream)
        return found


class PrivatePool:
    """Torch's PrivatePool: what a CUDA graph's capture, or a MemPool, allocates from."""

    def __init__(self, identity: tuple[int, int]) -> None:
        self.identity = identity
        self.small, self.large = Pool(small=True, private=self), Pool(small=False, private=self)
        self.freeable = False  # nobody uses it any more: its free segments can be given back


class FreeBlocks:
    """One stream's free blocks of a pool, by size, age of the segment and address, and its unmapped ones by address.

    Torch's BlockComparatorSizeCounterAddress; in older ones, where the age does not count, a segment's age is 0.
    """

    __slots__ = ("blocks", "pool", "stream", "unmapped")

    def __init__(self, pool: Pool, stream: int) -> None:
        self.pool, self.stream = pool, stream
        self.blocks: list[tuple[int, int, int, Block]] = []
        self.unmapped: list[tuple[int, Block]] = []

    def add(self, block: Block) -> None:
        """A block is free from now on."""
        insort(self.blocks, (block.size_bytes, block.segment.age, block.address, block))
        block.since = self.pool.requests

    def take(self, block: Block) -> None:
        """A block is no longer among them, or about to change."""
        del self.blocks[bisect_left(self.blocks, (block.size_bytes, block.segment.age, block.address))]

    def add_unmapped(self, block: Block) -> None:
        """Addresses without memory."""
        insort(self.unmapped, (block.address, block))

    def take_unmapped(self, block: Block) -> None:
        """They get some, or grow, or go."""
        del self.unmapped[bisect_left(self.unmapped, (block.address,))]


class Segment:
    """Memory that the device gave at once; an expandable one is a range of addresses that is given memory in pages."""

    __slots__ = ("address", "age", "expandable", "first", "size_bytes")

    def __init__(self, address: int, size_bytes: int, *, expandable: bool, age: int = 0) -> None:
        self.address, self.size_bytes, self.expandable = address, size_bytes, expandable
        self.age = age  # torch's registration_counter: how many there were before
        self.first: Optional[Block] = None


class Block:
    """A piece of a segment; `previous` and `next` are its neighbours in it."""

    __slots__ = (
        "address",
        "asked_bytes",
        "home",
        "next",
        "previous",
        "segment",
        "since",
        "size_bytes",
        "state",
        "streams",
    )

    def __init__(self, home: FreeBlocks, segment: Segment, address: int, size_bytes: int, state: int = FREE) -> None:
        self.home, self.segment, self.address, self.size_bytes, self.state = home, segment, address, size_bytes, state
        self.asked_bytes = 0
        self.previous: Optional[Block] = None
        self.next: Optional[Block] = None
        self.since = 0  # the pool's requests when it became free
        self.streams: Optional[set[int]] = None  # others that use it

    @property
    def stream(self) -> int:
        """The stream for which it was allocated."""
        return self.home.stream

    @property
    def whole(self) -> bool:
        """Whether it is all of its segment: torch's not is_split."""
        return self.previous is None and self.next is None

    def put_before(self, following: Block) -> None:
        """Becomes the neighbour before another one."""
        self.previous, self.next = following.previous, following
        if self.previous is not None:
            self.previous.next = self
        else:
            self.segment.first = self
        following.previous = self

    def put_after(self, before: Block) -> None:
        """Becomes the neighbour after another one."""
        self.previous, self.next = before, before.next
        if self.next is not None:
            self.next.previous = self
        before.next = self

    def swallow_previous(self) -> None:
        """Becomes one with the neighbour before it, which must be out of every list."""
        previous = self.previous
        assert previous is not None
        self.address = previous.address
        self.size_bytes += previous.size_bytes
        self.previous = previous.previous
        if self.previous is not None:
            self.previous.next = self
        else:
            self.segment.first = self

    def swallow_next(self) -> None:
        """Becomes one with the neighbour after it, which must be out of every list."""
        following = self.next
        assert following is not None
        self.size_bytes += following.size_bytes
        self.next = following.next
        if self.next is not None:
            self.next.previous = self
