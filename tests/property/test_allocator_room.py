"""The simulated allocator's own bookkeeping, whatever a program does with it, and what it says would fit."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.allocator.blocks import FREE, LIVE, PENDING, UNMAPPED, Block
from memtui.analysis.allocator.caching import CachingAllocator, OutOfMemory
from memtui.analysis.allocator.room import Room
from memtui.analysis.allocator.settings import Settings
from memtui.analysis.allocator.snapshot import restored, stretches

MIB = 1 << 20
KINDS = st.sampled_from(
    (
        Settings(),
        Settings(expandable_segments=True),
        Settings(max_split_bytes=40 * MIB),
        Settings(roundup_power2_divisions=(4,) * 16),
        Settings(garbage_collection_threshold=0.5),
    )
)
SIZES = st.one_of(st.integers(1, 3000), st.integers(1, 4 * MIB), st.integers(1, 90 * MIB))
#: A size: allocate so much; a place: free that block; None: give the cache back.
DONE = st.lists(st.one_of(st.tuples(SIZES, st.integers(0, 2)), st.integers(0, 40), st.none()), max_size=60)


def after(done: list[object], kind: Settings) -> tuple[CachingAllocator, list[Block]]:
    """An allocator of 200 MiB that has done this."""
    allocator = CachingAllocator(kind, capacity_bytes=200 * MIB, allowed_bytes=190 * MIB, total_bytes=256 * MIB)
    live: list[Block] = []
    for each in done:
        if each is None:
            allocator.empty_cache()
        elif isinstance(each, tuple):
            try:
                live.append(allocator.allocate(*each))
            except OutOfMemory:
                assert allocator.reserved_bytes <= 190 * MIB
        elif live:
            allocator.free(live.pop(each % len(live)))
    return allocator, live


@given(DONE, KINDS)
def test_blocks_and_counters_add_up(done: list[object], kind: Settings) -> None:
    """No two blocks overlap, no two free ones are neighbours, every byte of a segment is in one block."""
    allocator, live = after(done, kind)
    blocks = list(allocator.blocks())
    assert [block for block in blocks if block.state == LIVE] == sorted(live, key=lambda block: block.address)
    assert allocator.allocated_bytes == sum(block.size_bytes for block in live)
    assert allocator.reserved_bytes == sum(block.size_bytes for block in blocks if block.state != UNMAPPED)
    assert allocator.peak_allocated_bytes >= allocator.allocated_bytes
    assert 190 * MIB >= allocator.peak_reserved_bytes >= allocator.reserved_bytes
    for before, block in zip(blocks, blocks[1:]):
        assert before.address + before.size_bytes <= block.address
        if before.next is block:
            assert block.previous is before
            assert before.address + before.size_bytes == block.address
            assert {before.state, block.state} not in ({FREE}, {UNMAPPED})
    listed = [block for pool in allocator.pools() for home in pool.streams.values() for *_, block in home.blocks]
    assert sorted(map(id, listed)) == sorted(id(block) for block in blocks if block.state == FREE)
    assert PENDING not in {block.state for block in blocks}


@given(DONE, KINDS)
def test_all_that_is_freed_goes_back(done: list[object], kind: Settings) -> None:
    """Nothing is left of segments once every block is freed and the cache emptied."""
    allocator, live = after(done, kind)
    for block in live:
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.allocated_bytes, allocator.reserved_bytes, allocator.segments) == (0, 0, {})


@settings(deadline=None)
@given(DONE, KINDS, SIZES, st.integers(0, 2))
def test_what_would_fit_does(done: list[object], kind: Settings, size: int, stream: int) -> None:
    """`would_fit` is what allocating then finds, and `largest_bytes` can be had while a unit more cannot."""
    allocator, _ = after(done, kind)
    room = Room(allocator)
    largest = room.largest_bytes(stream)
    assert largest is not None
    assert not largest or room.would_fit(largest, stream)
    assert not room.would_fit(largest + 512, stream)
    assert Room(CachingAllocator(kind)).largest_bytes() is None
    fits = room.would_fit(size, stream)
    try:
        allocator.allocate(size, stream)
    except OutOfMemory:
        assert not fits
    else:
        assert fits


@given(DONE, KINDS)
def test_a_snapshot_is_the_allocator_again(done: list[object], kind: Settings) -> None:
    """What was taken from a snapshot has the same blocks, is asked for the same, and answers the same."""
    allocator, _ = after(done, kind)
    found = stretches(allocator)
    again, live = restored(found, kind, capacity_bytes=200 * MIB, total_bytes=256 * MIB)
    assert stretches(again) == found
    assert (again.allocated_bytes, again.reserved_bytes) == (allocator.allocated_bytes, allocator.reserved_bytes)
    for block in live.values():
        again.free(block)
    again.empty_cache()
    assert again.reserved_bytes == 0
