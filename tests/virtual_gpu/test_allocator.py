"""The simulated caching allocator against torch's own, after each of thousands of operations: every block the same."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from typing import Any, Union

import pytest

from memtui.analysis.allocator.blocks import FREE, LIVE, PENDING, Block
from memtui.analysis.allocator.caching import CachingAllocator, OutOfMemory
from memtui.analysis.allocator.settings import settings_from
from memtui.analysis.allocator.snapshot import restored, stretches, stretches_from, stretches_of
from tests.support import programs

pytestmark = pytest.mark.virtual_gpu

PROGRAM = programs.PROGRAMS / "allocating.py"
OPERATIONS = 500
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
STATES = {"inactive": FREE, "active_allocated": LIVE, "active_awaiting_free": PENDING, "active_pending_free": PENDING}
COUNTERS = (
    *("allocated_bytes", "reserved_bytes", "peak_allocated_bytes", "peak_reserved_bytes"),
    *("num_alloc_retries", "num_ooms"),
)

Operation = list[Union[str, int, float]]


def operations(seed: int, *, most_bytes: int, streams: int, fraction: float = 0) -> Iterator[Operation]:
    """Allocations and frees as trainings have them: few sizes often, any size now and then."""
    drawn = random.Random(seed)
    if fraction:
        yield ["fraction", fraction]
    usual = [int(2 ** drawn.uniform(0, most_bytes.bit_length() - 1)) for _ in range(12)]
    edges = [512, 513, MIB, MIB + 1, 2 * MIB, 10 * MIB - 1, 10 * MIB, 20 * MIB]
    live: list[str] = []
    for number in range(OPERATIONS):
        chance = drawn.random()
        wanted = 30 * (1 + number % 150 // 100)  # fills up and empties in turn
        if chance < 0.02:
            yield ["empty_cache"]
        elif chance < 0.03:
            yield ["reset_peaks"]
        elif live and chance < 0.06 and streams > 1:
            yield ["record_stream", drawn.choice(live), drawn.randrange(streams)]
        elif live and drawn.random() < len(live) / (2 * wanted):
            yield ["free", live.pop(drawn.randrange(len(live)))]
        else:
            sizes = drawn.choice((usual, usual, edges, [int(2 ** drawn.uniform(0, most_bytes.bit_length() - 1))]))
            live.append(f"t{number}")
            yield ["allocate", live[-1], drawn.choice(sizes), drawn.choice((0, 0, drawn.randrange(streams)))]


class Both:
    """The same operations done by torch, in a process on a virtual GPU, and by the simulator."""

    def __init__(self, asked: list[Operation], settings: str, memory: str) -> None:
        environment = programs.plain_environment() | programs.virtual_gpu.virtual_environment(memory=memory)
        environment["PYTORCH_CUDA_ALLOC_CONF"] = settings
        done = subprocess.run(
            [*programs.command(str(PROGRAM), direct=False)],
            env=environment,
            input="".join(json.dumps(operation) + "\n" for operation in asked),
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        device, told, *self.said = map(json.loads, done.stdout.splitlines())
        assert len(self.said) == len(asked)
        self.asked = asked
        self.now: list[Any] = []
        self.allocator = CachingAllocator(
            settings_from(told["settings"]),
            capacity_bytes=device["free_bytes"],
            total_bytes=device["total_bytes"],
            allowed_bytes=int(asked[0][1] * device["total_bytes"]) if asked[0][0] == "fraction" else None,
            place=self.place,
        )
        self.live: dict[Any, Block] = {}

    def place(self, size_bytes: int) -> int:
        """Where the virtual GPU has put the segment that torch has just asked for."""
        known = [(segment.address, segment.address + segment.size_bytes) for segment in self.allocator.segments.values()]
        for address, _, _, expandable, blocks in self.now:
            new = not any(first <= address < end for first, end in known)
            if new and (expandable or sum(block[0] for block in blocks) == size_bytes):
                return int(address)
        return min((first for first, _ in known), default=1 << 46) - size_bytes  # there was no memory for it

    def do(self, operation: str, *arguments: Any) -> bool:
        """Whether there was not memory enough."""
        allocator = self.allocator
        if operation == "allocate":
            name, size, stream = arguments
            try:
                self.live[name] = allocator.allocate(size, stream)
            except OutOfMemory:
                return True
        elif operation == "free":
            block = self.live.pop(arguments[0], None)
            if block is not None:
                allocator.free(block)
        elif operation == "record_stream":
            if arguments[0] in self.live:
                allocator.record_stream(self.live[arguments[0]], arguments[1])
        elif operation == "empty_cache":
            allocator.empty_cache()
        elif operation == "reset_peaks":
            allocator.reset_peaks()
        return False


def compare(asked: list[Operation], settings: str, memory: str) -> Both:
    """Does all of them, each time comparing all counters and every block.

    Where an expandable segment begins is not compared: it may be there before it has memory that is told of.
    """
    both = Both(asked, settings, memory)
    for number, (operation, said) in enumerate(zip(asked, both.said)):
        both.now = said["segments"]
        where = f"operation {number}: {operation}"
        assert both.do(*operation) == said["failed"], where
        assert {name: getattr(both.allocator, name) for name in COUNTERS} == {name: said[name] for name in COUNTERS}, where
        mine = [
            [stretch.address * (not stretch.expandable), *stretch[1:3], stretch.expandable, *map(list, stretch.pieces)]
            for stretch in stretches(both.allocator)
        ]
        theirs = [
            [
                *(address * (not expandable), small, stream, expandable),
                *([size, STATES[state], asked_bytes] for size, state, asked_bytes in blocks),
            ]
            for address, small, stream, expandable, blocks in said["segments"]
        ]
        assert sorted(mine) == sorted(theirs), where
    return both


NARROW = ("700MiB", 0.0)
LIMITED = ("2GiB", 0.3)  # by set_per_process_memory_fraction


@pytest.mark.parametrize(("memory", "fraction"), [("64GiB", 0.0), NARROW, LIMITED])
@pytest.mark.parametrize(
    "settings",
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:64",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[64:8,256:4,1024:2,>:1]",
        "max_split_size_mb:40,roundup_power2_divisions:8,max_non_split_rounding_mb:64",
        "large_segment_size_mb:40",
        "expandable_segments:True,max_split_size_mb:64,roundup_power2_divisions:4",
        "garbage_collection_threshold:0.5",
        "garbage_collection_threshold:0.3,max_split_size_mb:40",
    ],
)
def test_every_block_is_where_torch_has_it(settings: str, memory: str, fraction: float) -> None:
    """Sizes from a byte to a GiB on four streams, streams of which blocks are recorded; with little memory, failures."""
    for seed in range(2):
        asked = list(operations(seed, most_bytes=GIB, streams=4, fraction=fraction))
        both = compare(asked, settings, memory)
        if memory != "64GiB":
            assert both.allocator.num_ooms >= 5
            assert both.allocator.num_alloc_retries >= both.allocator.num_ooms
