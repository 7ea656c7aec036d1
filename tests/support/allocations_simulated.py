"""Random programs done by the simulated allocator, and compared with what torch's own answered to them."""

from __future__ import annotations

import array
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

from memtui.analysis.allocator.blocks import Block, Segment
from memtui.analysis.allocator.caching import NO_POOL, CachingAllocator, OutOfMemory
from memtui.analysis.allocator.settings import settings_from
from tests.support.allocations import ALLOCATE, CAPTURE, CAPTURED, CAPTURED_STREAM, DROP, EMPTY, FREE, USE, Trace, trace

#: What is compared when a program has ended.
COUNTERS = (
    "allocated_bytes",
    "peak_allocated_bytes",
    "reserved_bytes",
    "peak_reserved_bytes",
    "num_alloc_retries",
    "num_ooms",
)
#: The end of a process's addresses, and what the virtual GPU asks for beside a range, to align it.
_HIGHEST, _ASIDE_BYTES = 1 << 47, 2 << 20


class Compared(NamedTuple):
    """One program: torch's counters and the simulator's, and the first block that is elsewhere, -1 where none is."""

    kind: str
    number: int
    events: int
    real: dict[str, int]
    simulated: dict[str, int]
    elsewhere: int

    @property
    def equal(self) -> bool:
        """Every counter and every block."""
        return self.real == self.simulated and self.elsewhere < 0

    @property
    def error(self) -> float:
        """The larger of those of reserved bytes, at the peak and at the end, as a share of the peak."""
        names = ("reserved_bytes", "peak_reserved_bytes")
        return max(abs(self.simulated[name] - self.real[name]) for name in names) / self.real["peak_reserved_bytes"]


class Simulation:
    """One program done by the simulator; `blocks` are its allocations, None where there was not memory enough."""

    def __init__(self, done: Trace, device: dict[str, Any]) -> None:
        self.trace = done
        settings = settings_from(device["settings"])
        self.allocator = CachingAllocator(
            settings,
            capacity_bytes=device["free_bytes"],
            total_bytes=device["total_bytes"],
            allowed_bytes=int(done.fraction * device["total_bytes"]) if done.fraction < 1 else None,
            place=self.below if settings.expandable_segments else None,
        )
        self.blocks: list[Optional[Block]] = []

    def below(self, size_bytes: int) -> int:
        """Where the virtual GPU puts a range of addresses: in the highest gap that is large enough, as Linux does."""
        above, span = _HIGHEST, size_bytes + _ASIDE_BYTES
        for address, segment in sorted(self.allocator.segments.items(), reverse=True):
            if above - address - segment.size_bytes >= span:
                break
            above = address
        return above - span

    def places(self) -> Iterator[tuple[Optional[Segment], int]]:
        """Does it; where each block is put, just after it was: its segment and its address."""
        allocator, blocks, captured = self.allocator, self.blocks, 0
        for operation, *words in self.trace.operations:
            if operation == ALLOCATE:
                size, stream, pool = words
                if captured and stream == CAPTURED_STREAM:
                    pool = captured
                try:
                    block = allocator.allocate(size, stream, (pool, 0) if pool else NO_POOL)
                except OutOfMemory:
                    blocks.append(None)
                    yield None, -1
                else:
                    blocks.append(block)
                    yield block.segment, block.address
            elif operation == FREE:
                block = blocks[words[0]]
                if block is not None:
                    allocator.free(block)
            elif operation == USE:
                block = blocks[words[0]]
                if block is not None:
                    allocator.record_stream(block, words[1])
            elif operation == EMPTY:
                allocator.empty_cache()
            elif operation == DROP:
                allocator.free_pool((words[0], 0), at_once=True)
            elif operation in {CAPTURE, CAPTURED}:
                captured = words[0] if operation == CAPTURE else 0
                allocator.capturing = (captured, 0) if captured else None


def compared(number: int, device: dict[str, Any], real: dict[str, int], addresses: Sequence[int]) -> Compared:
    """One program; blocks are in the same place where every segment's are as far from its beginning as in torch's."""
    simulation = Simulation(_trace(number, device), device)
    apart: dict[Segment, int] = {}
    elsewhere = -1
    for place, (segment, address) in enumerate(simulation.places()):
        told = addresses[place]
        if segment is None or told < 0:
            differs = (segment is None) != (told < 0)
        else:
            differs = apart.setdefault(segment, told - address) != told - address
        if differs and elsewhere < 0:
            elsewhere = place
    found = {name: getattr(simulation.allocator, name) for name in COUNTERS}
    done = simulation.trace
    return Compared(done.kind, number, len(done.operations), real, found, elsewhere)


def all_compared(folder: pathlib.Path, numbers: Iterable[int]) -> Iterator[Compared]:
    """What tests/bench/programs/allocator.py has written of these programs."""
    device = json.loads((folder / "device").read_text(encoding="utf-8"))
    with (folder / "counters").open(encoding="utf-8") as said, (folder / "addresses").open("rb") as placed:
        for number, line in zip(numbers, said):
            made = sum(operation[0] == ALLOCATE for operation in _trace(number, device).operations)
            addresses = array.array("q")
            addresses.fromfile(placed, made)
            yield compared(number, device, json.loads(line), addresses)


def _trace(number: int, device: dict[str, Any]) -> Trace:
    return trace(number, expandable=device["settings"]["expandable_segments"])
