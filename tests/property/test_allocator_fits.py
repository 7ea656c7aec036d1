"""What an allocator would do with a request, against what it then does."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.allocator.caching import CachingAllocator, OutOfMemory
from memtui.analysis.allocator.fits import Fits
from memtui.analysis.allocator.settings import Settings
from tests.property.test_allocator_room import DONE, KINDS, MIB, SIZES, after

#: Where free segments may go back before the device is asked, only the simulator itself knows which.
PLAIN = KINDS.filter(lambda kind: not kind.garbage_collection_threshold)


@settings(deadline=None)
@given(DONE, PLAIN, SIZES, st.integers(0, 1))
def test_the_answer_is_what_happens(done: list[object], kind: Settings, size: int, stream: int) -> None:
    """From a free block of that size, by so much new memory, only after something went back, or not at all."""
    allocator, _ = after(done, kind)
    found = Fits(allocator, stream).ask(size)
    if found.how == "perhaps":
        assert kind.expandable_segments
        return
    reserved, retries = allocator.reserved_bytes, allocator.num_alloc_retries
    oversize = kind.max_split_bytes is not None and size >= kind.max_split_bytes
    try:
        allocator.allocate(size, stream)
    except OutOfMemory:
        assert found.how == "no"
        assert found.short_bytes > 0
        return
    if found.how == "cache":
        assert (allocator.reserved_bytes, allocator.num_alloc_retries) == (reserved, retries)
        assert found.block_bytes >= size
    elif found.how == "driver":
        assert (allocator.reserved_bytes, allocator.num_alloc_retries) == (reserved + found.new_bytes, retries)
    else:
        assert found.how == "returned"
        assert oversize or allocator.num_alloc_retries == retries + 1


@settings(deadline=None)
@given(DONE, PLAIN, SIZES)
def test_nothing_larger_than_the_largest_succeeds(done: list[object], kind: Settings, size: int) -> None:
    """Neither from the cache, nor from the device, nor at all; and the largest themselves do."""
    allocator, _ = after(done, kind)
    fits = Fits(allocator)
    cached, new, most = fits.largest_cached_bytes, fits.largest_new_bytes, fits.largest_bytes
    assert new is not None
    assert most is not None
    assert most >= max(cached, 0)
    if cached:
        assert fits.ask(cached).how == "cache"
    if most:
        assert fits.ask(most).how not in {"perhaps", "no"}
    found = fits.ask(size).how
    if size > cached:
        assert found != "cache"
    if size > new:
        assert found != "driver"
    if size > most:
        assert found in {"no", "perhaps"}


@given(DONE, SIZES)
def test_where_the_device_is_unknown_only_the_cache_is_sure(done: list[object], size: int) -> None:
    allocator, _ = after(done, Settings())
    unknown = CachingAllocator(Settings())
    assert Fits(unknown).ask(size).how == "unknown"
    assert (Fits(unknown).largest_new_bytes, Fits(unknown).largest_bytes) == (None, None)
    told = Fits(allocator).ask(size)
    allocator.capacity_bytes = allocator.allowed_bytes = None
    again = Fits(allocator).ask(size)
    if told.how == "cache":
        assert again == told
    else:
        assert (again.how, again.block_bytes) == ("unknown", 0)
    assert Fits(allocator).returnable_bytes <= 200 * MIB
