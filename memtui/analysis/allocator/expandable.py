"""Expandable segments: ranges of addresses that are given memory page by page, where it is needed and as it is had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

from .blocks import FREE, UNMAPPED, Block, FreeBlocks, Segment

#: Asks for memory, of which it returns whether there is so much.
Claim = Callable[[int], bool]


def best_fit(home: FreeBlocks, place: int) -> int:
    """The place of the block to take, the first that is large enough being at `place`: as in get_free_block.

    One that can grow counts as large as it can become, so that it is spared.
    """
    blocks = home.blocks
    while (
        place + 1 < len(blocks)
        and blocks[place][3].segment.expandable
        and _room(blocks[place + 1][3]) < _room(blocks[place][3])
    ):
        place += 1
    return place


def _room(block: Block) -> int:
    following = block.next
    return block.size_bytes + (following.size_bytes if following is not None and following.state == UNMAPPED else 0)


def candidate(home: FreeBlocks, size_bytes: int) -> Optional[Block]:
    """The first of neighbours that have the addresses for a block: torch's find_expandable_block. None: a new segment.

    That at the lowest address is taken, and the free block before an unmapped one with it.
    """
    for _, unmapped in home.unmapped:
        block, previous = unmapped, unmapped.previous
        if previous is not None and previous.state == FREE:
            block = previous
        found, following = 0, block
        while following is not None and found < size_bytes and following.state in (FREE, UNMAPPED):
            found += following.size_bytes
            following = following.next  # type: ignore[assignment]
        if found >= size_bytes:
            return block
    return None


def missing_bytes(first: Optional[Block], size_bytes: int, page_bytes: int) -> int:
    """The memory that a block of `size_bytes` which begins at `first` must be given, in whole pages."""
    missing, found, block = 0, 0, first
    while block is not None and found < size_bytes:
        size = block.size_bytes
        if block.state == UNMAPPED:
            size = min(size, -(-(size_bytes - found) // page_bytes) * page_bytes)
            missing += size
        found += size
        block = block.next
    return missing + max(0, -(-(size_bytes - found) // page_bytes) * page_bytes)


def grow(block: Block, size_bytes: int, page_bytes: int, claim: Claim) -> Optional[Block]:
    """Gives `block` and the neighbours after it memory for `size_bytes`: try_allocate_expandable_block.

    The block that has it, which is free and in no list; None where the memory does not suffice. What was got until
    then is kept, as torch does.
    """
    if block.state == UNMAPPED and not _map(block, min(block.size_bytes, size_bytes), page_bytes, claim):
        return None
    while block.size_bytes < size_bytes:
        following = block.next
        assert following is not None
        if not _map(following, min(size_bytes - block.size_bytes, following.size_bytes), page_bytes, claim):
            return None
        block = following
    block.home.take(block)
    return block


def _map(block: Block, size_bytes: int, page_bytes: int, claim: Claim) -> bool:
    """Torch's map_block."""
    mapped_bytes = -(-size_bytes // page_bytes) * page_bytes
    if not claim(mapped_bytes):
        return False
    home = block.home
    home.take_unmapped(block)
    block.state = FREE
    if mapped_bytes < block.size_bytes:
        rest = Block(home, block.segment, block.address + mapped_bytes, block.size_bytes - mapped_bytes, UNMAPPED)
        rest.put_after(block)
        home.add_unmapped(rest)
        block.size_bytes = mapped_bytes
    _merge(block, home.take)
    home.add(block)
    return True


def unmap(block: Block, page_bytes: int) -> int:
    """Takes the memory of a free block's whole pages, their bytes: torch's unmap_block."""
    home, base = block.home, block.segment.address
    begin = base + -(-(block.address - base) // page_bytes) * page_bytes
    end = base + (block.address + block.size_bytes - base) // page_bytes * page_bytes
    if begin >= end:
        return 0
    home.take(block)
    after_bytes = block.address + block.size_bytes - end
    if begin > block.address:
        before = Block(home, block.segment, block.address, begin - block.address)
        before.put_before(block)
        home.add(before)
    if after_bytes:
        after = Block(home, block.segment, end, after_bytes)
        after.put_after(block)
        home.add(after)
    block.address, block.size_bytes, block.state = begin, end - begin, UNMAPPED
    _merge(block, home.take_unmapped)
    home.add_unmapped(block)
    return end - begin


def _merge(block: Block, take: Callable[[Block], None]) -> None:
    if block.previous is not None and block.previous.state == block.state:
        take(block.previous)
        block.swallow_previous()
    if block.next is not None and block.next.state == block.state:
        take(block.next)
        block.swallow_next()


def new_range(home: FreeBlocks, segment: Segment) -> Block:
    """All of a new segment, without memory."""
    block = Block(home, segment, segment.address, segment.size_bytes, UNMAPPED)
    segment.first = block
    home.add_unmapped(block)
    return block
