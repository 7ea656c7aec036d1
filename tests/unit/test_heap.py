"""Sizes of blocks, followed through a made-up history: what torch's allocator would have given."""

from __future__ import annotations

from typing import Any

import pytest

from memtui.agent.heap import Heap, Rounding

MIB = 1 << 20
START = 1 << 40
PLAIN = Rounding({})


def segment(*blocks: tuple[int, str], kind: str = "large", address: int = START, **more: Any) -> dict[str, Any]:
    return {
        "address": address,
        "segment_type": kind,
        "blocks": [{"size": size, "state": state} for size, state in blocks],
        **more,
    }


@pytest.mark.parametrize(
    ("divisions", "asked", "rounded"),
    [
        (0, 1, 512),
        (0, 513, 1024),
        (0, 5 * MIB, 5 * MIB),
        (4, 1000, 1024),  # smaller than what is divided
        (4, 5 * MIB + 1, 6 * MIB),
        (4, 8 * MIB, 8 * MIB),
        (8, 5 * MIB + 1, 5 * MIB + MIB // 2),
    ],
)
def test_rounding(divisions: int, asked: int, rounded: int) -> None:
    rounding = Rounding({"roundup_power2_divisions": {str(1 << power): divisions for power in range(16)}})
    assert rounding.rounded(asked) == rounded


def test_a_small_rest_of_a_large_block_is_not_cut_off() -> None:
    heap = Heap([segment((20 * MIB, "inactive"))], PLAIN)
    assert heap.alloc(START, 15 * MIB) == 15 * MIB
    assert heap.alloc(START + 15 * MIB, 4 * MIB) == 5 * MIB
    assert heap.live == {START: 15 * MIB, START + 15 * MIB: 5 * MIB}


def test_large_blocks_are_never_cut_where_the_program_says_so() -> None:
    heap = Heap([segment((80 * MIB, "inactive"))], Rounding({"max_split_size": 40 * MIB}))
    assert heap.alloc(START, 50 * MIB) == 80 * MIB


def test_small_blocks_are_cut_to_the_last_unit() -> None:
    heap = Heap([segment((2 * MIB, "inactive"), kind="small")], PLAIN)
    assert heap.alloc(START, 2 * MIB - 512) == 2 * MIB - 512


def test_free_neighbours_become_one_and_other_segments_do_not() -> None:
    states = [(8 * MIB, "active_allocated"), (6 * MIB, "active_allocated"), (6 * MIB, "inactive")]
    heap = Heap([segment(*states), segment((20 * MIB, "inactive"), address=START + 20 * MIB)], PLAIN)
    for address in (START + 8 * MIB, START):
        heap.free_requested(address)
        heap.other("free_completed", address, 0)
    assert not heap.live
    assert heap.alloc(START, 19 * MIB + 512) == 20 * MIB


def test_what_waits_for_another_stream_is_neither_live_nor_free() -> None:
    heap = Heap([segment((10 * MIB, "active_allocated"), (10 * MIB, "inactive"))], PLAIN)
    assert heap.free_requested(START) == 10 * MIB
    assert heap.alloc(START + 10 * MIB, 10 * MIB) == 10 * MIB
    heap.other("free_completed", START, 0)
    assert heap.alloc(START, 9 * MIB + 512) == 10 * MIB


def test_segments_come_and_go() -> None:
    heap = Heap([], PLAIN)
    heap.other("segment_alloc", START, 20 * MIB)
    assert heap.alloc(START, 19 * MIB + 1) == 20 * MIB
    heap.free_requested(START)
    heap.other("free_completed", START, 0)
    heap.other("segment_free", START, 20 * MIB)
    heap.other("segment_alloc", START, 2 * MIB)  # the same address, for small blocks
    assert heap.alloc(START, 1024) == 1024


def test_expandable_segments_are_always_cut() -> None:
    states = [(2 * MIB, "active_allocated"), (18 * MIB, "inactive")]
    heap = Heap([segment(*states, is_expandable=True)], PLAIN)
    assert heap.alloc(START + 2 * MIB, 17 * MIB + 100) == 17 * MIB + 512
    assert heap.free_requested(START) == 2 * MIB
    heap.other("free_completed", START, 0)
    assert heap.alloc(START, 512) == 512
