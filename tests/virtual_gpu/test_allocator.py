"""The simulated caching allocator against torch's own, after each of thousands of operations: every block the same."""

from __future__ import annotations

import json
import pathlib
import random
import subprocess
from collections.abc import Iterator
from typing import Any, Union

import pytest

from memtui.analysis.allocator.blocks import LIVE, Block
from memtui.analysis.allocator.caching import CachingAllocator, OutOfMemory
from memtui.analysis.allocator.settings import settings_from
from memtui.analysis.allocator.snapshot import Stretch, restored, stretches, stretches_from
from tests.support import allocations, programs
from tests.support.allocations_simulated import all_compared

pytestmark = pytest.mark.virtual_gpu

PROGRAM = programs.PROGRAMS / "allocating.py"
OPERATIONS = 400
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HELD = ("allocated_bytes", "reserved_bytes")
COUNTERS = (*HELD, "peak_allocated_bytes", "peak_reserved_bytes", "num_alloc_retries", "num_ooms")

Operation = list[Union[str, int, float]]


def operations(seed: int, *, most_bytes: int, streams: int, fraction: float = 0) -> Iterator[Operation]:
    """Allocations and frees as trainings have them: few sizes often, any size now and then."""
    drawn = random.Random(seed)
    if fraction:
        yield ["fraction", fraction]
    usual = [int(2 ** drawn.uniform(0, most_bytes.bit_length() - 1)) for _ in range(12)]
    edges = [512, 513, MIB, MIB + 1, 2 * MIB, 10 * MIB - 1, 10 * MIB, 19 * MIB, 20 * MIB]
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
        self.now: list[Stretch] = []
        self.settings = settings_from(told["settings"])
        self.limits: dict[str, Any] = {
            "capacity_bytes": device["free_bytes"],
            "total_bytes": device["total_bytes"],
            "allowed_bytes": int(asked[0][1] * device["total_bytes"]) if asked[0][0] == "fraction" else None,
        }
        self.allocator = CachingAllocator(self.settings, place=self.place, **self.limits)
        self.live: dict[Any, Block] = {}

    def place(self, size_bytes: int) -> int:
        """Where the virtual GPU has put the segment that torch has just asked for."""
        segments = self.allocator.segments.values()
        known = [(segment.address, segment.address + segment.size_bytes) for segment in segments]
        for stretch in self.now:
            new = not any(first <= stretch.address < end for first, end in known)
            if new and (stretch.expandable or stretch.size_bytes == size_bytes):
                return stretch.address
        return min((first for first, _ in known), default=1 << 46) - size_bytes  # there was no memory for it yet

    def begin_again(self) -> None:
        """The simulator forgets, and goes on from what torch's snapshot tells; only the ages are not told there."""
        names = {block.address: name for name, block in self.live.items()}
        ages = {segment.address: segment.age for segment in self.allocator.segments.values()}
        found = sorted(self.now, key=lambda stretch: ages.get(stretch.address, 0))
        self.allocator, live = restored(found, self.settings, place=self.place, **self.limits)
        self.live = {names[address]: block for address, block in live.items() if block.state == LIVE}

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


def compare(asked: list[Operation], settings: str, memory: str, *, again_after: int = -1) -> Both:
    """Does all of them, each time comparing all counters and every block.

    Where an expandable segment begins is not compared: it may be there before it has memory that is told of. From
    operation `again_after` on, if any, the simulator is another one, which does not know what was before.
    """
    both = Both(asked, settings, memory)
    counters = COUNTERS if again_after < 0 else HELD
    for number, (operation, said) in enumerate(zip(asked, both.said)):
        both.now = stretches_from(said["segments"])
        where = f"operation {number}: {operation}"
        assert both.do(*operation) == said["failed"], where
        assert {name: getattr(both.allocator, name) for name in counters} == {name: said[name] for name in counters}, (
            where
        )
        assert without_ranges(stretches(both.allocator)) == without_ranges(both.now), where
        if number == again_after:
            both.begin_again()
    return both


def without_ranges(found: list[Stretch]) -> list[Stretch]:
    """The same with nothing said of where expandable segments are."""
    return sorted(stretch._replace(address=0) if stretch.expandable else stretch for stretch in found)


MUCH, NARROW = ("64GiB", 0.0), ("700MiB", 0.0)
LIMITED = ("2GiB", 0.3)  # by set_per_process_memory_fraction
SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "roundup_power2_divisions:[64:8,256:4,1024:2,>:1]",
    "max_split_size_mb:40,roundup_power2_divisions:8,max_non_split_rounding_mb:64",
    "large_segment_size_mb:40",
    "expandable_segments:True,max_split_size_mb:64,roundup_power2_divisions:4",
    "garbage_collection_threshold:0.3,max_split_size_mb:40",
)


@pytest.mark.parametrize(
    ("settings", "memory", "fraction"),
    [
        *((settings, *NARROW) for settings in SETTINGS),
        *((settings, *LIMITED) for settings in (SETTINGS[0], SETTINGS[1], SETTINGS[-1])),
        *((settings, *MUCH) for settings in SETTINGS[:2]),
    ],
)
def test_every_block_is_where_torch_has_it(settings: str, memory: str, fraction: float) -> None:
    """Sizes from a byte to a GiB, four streams that use each other's blocks; failures where memory is short."""
    asked = list(operations(len(settings), most_bytes=GIB, streams=4, fraction=fraction))
    both = compare(asked, settings, memory)
    if memory != "64GiB":
        assert both.allocator.num_alloc_retries >= both.allocator.num_ooms > 0


@pytest.mark.parametrize(
    ("settings", "memory", "most"),
    [("max_split_size_mb:21", "900MiB", 12), ("garbage_collection_threshold:0.4", "4GiB", 30)],
)
def test_whole_segments_that_wait(settings: str, memory: str, most: int) -> None:
    """Mostly large blocks that come and go, each all of its segment: which of them go back to the device, and when."""
    drawn = random.Random(3)
    asked: list[Operation] = [["fraction", 0.9]]
    live: list[str] = []
    for number in range(OPERATIONS):
        if len(live) > drawn.randrange(most):
            asked.append(["free", live.pop(drawn.randrange(len(live)))])
        else:
            live.append(f"t{number}")
            asked.append(["allocate", live[-1], drawn.randrange(10, 60) * MIB * (1 + number % 3), 0])
    both = compare(asked, settings, memory)
    assert both.allocator.peak_reserved_bytes > both.allocator.reserved_bytes  # some have gone back


@pytest.mark.parametrize("settings", ["", "expandable_segments:True", "max_split_size_mb:64"])
def test_from_a_snapshot_on(settings: str) -> None:
    """A simulator that begins in the middle, with what torch's snapshot tells, goes on as torch does.

    Of an expandable segment it does not tell where it begins: no pages have gone back here.
    """
    asked = list(operations(5, most_bytes=GIB, streams=1))
    if settings.startswith("expandable"):
        asked = [operation for operation in asked if operation != ["empty_cache"]]
    compare(asked, settings, "64GiB", again_after=200)


@pytest.mark.parametrize(
    "settings", ["", "expandable_segments:True", "max_split_size_mb:64", "garbage_collection_threshold:0.5"]
)
def test_pools_graphs_and_streams(tmp_path: pathlib.Path, settings: str) -> None:
    """Two random programs a kind in one process, also with MemPools, captured graphs, a cap, and too little memory."""
    wanted = 2 * len(allocations.KINDS)
    environment = programs.plain_environment() | programs.virtual_gpu.virtual_environment(memory="24GiB")
    environment |= {"PYTORCH_CUDA_ALLOC_CONF": settings, "PYTHONPATH": str(programs.PROGRAMS.parents[1])}
    done = subprocess.run(
        programs.command("-m", "tests.bench.programs.allocator", "0", str(wanted), str(tmp_path), direct=False),
        env=environment,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = list(all_compared(tmp_path, range(wanted)))
    assert len(found) == wanted
    assert sum(each.real["num_ooms"] for each in found) > 0
    assert [each for each in found if not each.equal] == []
