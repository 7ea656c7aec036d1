"""The simulated allocator's own bookkeeping after random programs with streams, MemPools and captured graphs."""

from __future__ import annotations

from typing import Any

import pytest

from memtui.analysis.allocator.blocks import FREE, LIVE, PENDING, UNMAPPED
from memtui.analysis.allocator.caching import CachingAllocator
from tests.support import allocations
from tests.support.allocations_simulated import Simulation

MIB, GIB = 1 << 20, 1 << 30
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"expandable_segments": True},
    {"max_split_size": 64 * MIB, "garbage_collection_threshold": 0.5},
    {"PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:40", "roundup_power2_divisions": {"1": 8, "512": 4}},
)


def add_up(allocator: CachingAllocator) -> None:
    """Every byte of a segment is in one block, every free block in its own list, and counters are the blocks' sums."""
    blocks = list(allocator.blocks())
    sizes = {state: sum(block.size_bytes for block in blocks if block.state == state) for state in range(4)}
    assert allocator.allocated_bytes == sizes[LIVE]
    assert allocator.reserved_bytes == sizes[LIVE] + sizes[PENDING] + sizes[FREE]
    assert allocator.peak_allocated_bytes >= allocator.allocated_bytes
    assert 24 * GIB >= allocator.peak_reserved_bytes >= allocator.reserved_bytes
    for segment in allocator.segments.values():
        held = [block for block in blocks if block.segment is segment]
        assert sum(block.size_bytes for block in held) == segment.size_bytes
        assert len({id(block.home) for block in held}) == 1
        for before, block in zip(held, held[1:]):
            assert before.next is block
            assert block.previous is before
            assert before.address + before.size_bytes == block.address
            assert {before.state, block.state} not in ({FREE}, {UNMAPPED})
    homes = [home for pool in allocator.pools() for home in pool.streams.values()]
    for state, lists in ((FREE, [home.blocks for home in homes]), (UNMAPPED, [home.unmapped for home in homes])):
        assert all(listed == sorted(listed) for listed in lists)
        listed = {id(each[-1]) for found in lists for each in found}
        assert listed == {id(block) for block in blocks if block.state == state}


@pytest.mark.parametrize("told", SETTINGS)
def test_blocks_and_counters_add_up_and_all_goes_back(told: dict[str, Any]) -> None:
    device = {
        "settings": {"expandable_segments": False, **told},
        "free_bytes": 24 * GIB,
        "total_bytes": 24 * GIB,
    }
    for number in range(2 * len(allocations.KINDS)):
        simulation = Simulation(allocations.trace(number), device)
        for done, _ in enumerate(simulation.places()):
            if done % 50 == 0:
                add_up(simulation.allocator)
        allocator = simulation.allocator
        add_up(allocator)
        for block in simulation.blocks:
            if block is not None and block.state == LIVE:
                allocator.free(block)
        for pool in list(allocator.private):
            allocator.free_pool(pool)
        allocator.empty_cache()
        assert (allocator.allocated_bytes, allocator.reserved_bytes) == (0, 0)
        # A range of addresses for which there never was memory stays, as in torch.
        assert {block.state for block in allocator.blocks()} <= {UNMAPPED}
