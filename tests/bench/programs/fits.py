"""Brings torch's caching allocator into random states, tells each of them, and then really asks for so many bytes.

    fits.py FIRST COUNT FOLDER

Writes a line of JSON a state to FOLDER/states: the number of the program, torch's snapshot, what the device has free,
and for each request what it was, whether it succeeded, and what the allocator's own counters then said. Requests are
drawn around sizes at which something changes: those of free blocks, and what is free in all.
"""

from __future__ import annotations

import json
import pathlib
import random
import sys

import torch

from tests.support import allocations
from tests.support.allocations import ALLOCATE, EMPTY, FREE

KINDS = ("powers of two", "edges", "any size", "training", "near capacity", "capped", "tiny")
REQUESTS = 3

_raw_alloc = torch._C._cuda_cudaCachingAllocator_raw_alloc
_raw_delete = torch._C._cuda_cudaCachingAllocator_raw_delete


class Doer:
    """Does a program's first operations with the allocator's own calls, on the default stream."""

    def __init__(self):
        self.held = []

    def do(self, operations):
        for operation, *words in operations:
            if operation == ALLOCATE:
                self.held.append(allocated(words[0]))
            elif operation == FREE and self.held[words[0]] is not None:
                _raw_delete(self.held[words[0]])
                self.held[words[0]] = None
            elif operation == EMPTY:
                torch.cuda.empty_cache()

    def end(self):
        for block in self.held:
            if block is not None:
                _raw_delete(block)
        torch.cuda.empty_cache()
        assert not torch.cuda.memory_reserved()


def allocated(size):
    try:
        return _raw_alloc(size, 0)
    except torch.OutOfMemoryError:
        return None


def filled(drawn, doer, free_bytes):
    """Takes most of what is left, so that memory is short."""
    blocks = []
    left = int(free_bytes * drawn.choice((1, 0.9, 0.7, 0.4)))
    while left > 4 << 20:
        size = min(left, int(free_bytes * drawn.uniform(0.02, 0.4)) + 1)
        left -= size
        blocks.append(allocated(size))
    drawn.shuffle(blocks)
    for block in blocks[: drawn.randrange(len(blocks) + 1)]:  # some of it is free again, and cached
        if block is not None:
            _raw_delete(block)
            blocks[blocks.index(block)] = None
    doer.held += blocks


def told(snapshot):
    return {
        "allocator_settings": snapshot["allocator_settings"],
        "segments": [
            {
                **{
                    name: segment[name]
                    for name in ("address", "total_size", "stream", "segment_type", "is_expandable", "segment_pool_id")
                },
                "blocks": [{name: block[name] for name in ("size", "state")} for block in segment["blocks"]],
            }
            for segment in snapshot["segments"]
        ],
    }


def sizes(drawn, snapshot, free_bytes):
    """One around a free block's size, one around what is free on the device or in all, and any."""
    free = [block["size"] for each in snapshot["segments"] for block in each["blocks"] if block["state"] == "inactive"]
    chosen = drawn.choice(free) if free else 1 << drawn.randrange(9, 33)
    around = drawn.choice((-512, 0, 1, 512, 2 << 20, -(2 << 20)))
    whole = free_bytes + (sum(free) if drawn.random() < 0.5 else 0)
    return [
        max(1, chosen + around),
        max(1, int(whole * drawn.choice((0.5, 0.9, 0.99, 1, 1.01, 1.2)))),
        int(2 ** drawn.uniform(0, 34)),
    ]


def counters():
    stats = torch.cuda.memory_stats()
    return {
        "reserved_bytes": stats["reserved_bytes.all.current"],
        "num_alloc_retries": stats["num_alloc_retries"],
        "num_device_free": stats["num_device_free"],
    }


def asked(size):
    """The real answer; the block goes back to the cache."""
    before = counters()
    block = allocated(size)
    after = counters()
    if block is not None:
        _raw_delete(block)
    rises = {name: after[name] - before[name] for name in before}
    return {"size": size, "succeeded": block is not None, **rises}


def main():
    first, count, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    torch.cuda.init()
    expandable = torch.cuda.memory._snapshot()["allocator_settings"]["expandable_segments"]
    total = torch.cuda.mem_get_info()[1]
    kinds = [place for place, kind in enumerate(allocations.KINDS) if kind in KINDS]
    with (folder / "states").open("w", encoding="utf-8") as written:
        for number in range(first, first + count):
            drawn = random.Random(number)
            index = len(allocations.KINDS) * number + kinds[number % len(kinds)]
            trace = allocations.trace(index, expandable=expandable)
            torch.cuda.set_per_process_memory_fraction(trace.fraction)
            doer = Doer()
            doer.do(trace.operations[: drawn.randrange(len(trace.operations))])
            if drawn.random() < 0.8:
                free = torch.cuda.mem_get_info()[0]
                room = int(trace.fraction * total) - torch.cuda.memory_reserved()
                filled(drawn, doer, max(0, min(free, room)))
            for place in range(REQUESTS):  # each begins with the state that the one before has left
                snapshot, free = told(torch.cuda.memory._snapshot()), torch.cuda.mem_get_info()[0]
                state = {
                    "number": number,
                    "kind": trace.kind,
                    "fraction": trace.fraction,
                    "free_bytes": free,
                    "total_bytes": total,
                    "reserved_bytes": torch.cuda.memory_reserved(),
                    "snapshot": snapshot,
                }
                state["asked"] = asked(sizes(drawn, snapshot, free)[place])
                written.write(json.dumps(state) + "\n")
            doer.end()


if __name__ == "__main__":
    main()
