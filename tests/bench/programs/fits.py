"""Brings torch's caching allocator into random states, tells each of them, and then really asks for so many bytes.

    fits.py FIRST COUNT FOLDER

Writes a line of JSON a state to FOLDER/states: the number of the program, torch's snapshot, what the device has free,
and for each request what it was, whether it succeeded, and what the allocator's own counters then said. Requests are
drawn around sizes at which something changes: those of free blocks, and what is free in all; the last two are the
largest that is said to succeed and one of 512 bytes more. They are made on the stream that most memory is of. In some
states another process holds memory of the device.
"""

from __future__ import annotations

import json
import pathlib
import random
import subprocess
import sys

import torch

from tests.bench.programs import allocator
from tests.support import allocations, fits
from tests.support.allocations import CAPTURE, CAPTURED, STREAMS, USE

#: Of each program, and how many of them are drawn.
REQUESTS, RANDOM = 5, 3

#: Holds as many bytes of the device as it is told, and says so.
NEIGHBOUR = """
import sys, torch
held = None
for line in sys.stdin:
    held = None
    torch.cuda.empty_cache()
    held = torch.empty(int(line), dtype=torch.uint8, device="cuda")
    print(held.numel(), flush=True)
"""

_raw_alloc = torch._C._cuda_cudaCachingAllocator_raw_alloc
_raw_delete = torch._C._cuda_cudaCachingAllocator_raw_delete


class Neighbour:
    """Another process on the same device."""

    def __init__(self):
        self.process = None

    def hold(self, size):
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", NEIGHBOUR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        self.process.stdin.write(f"{size}\n")
        self.process.stdin.flush()
        assert int(self.process.stdout.readline()) == size

    def end(self):
        if self.process is not None:
            self.process.communicate(timeout=60)


class Doer(allocator.Doer):
    """Does a program's first operations, and then takes most of what is left, so that memory is short."""

    def __init__(self, streams, tensors):
        super().__init__(streams, tensors, [])
        self.filling = []

    def do_first(self, operations, count):
        self.do(operations[:count])
        begun = [operation for operation in operations[:count] if operation[0] in (CAPTURE, CAPTURED)]
        if begun and begun[-1][0] == CAPTURE:
            self.captured()

    def fill(self, drawn, free_bytes):
        blocks = []
        left = int(free_bytes * drawn.choice((1, 0.9, 0.7, 0.4)))
        while left > 4 << 20:
            size = min(left, int(free_bytes * drawn.uniform(0.02, 0.4)) + 1)
            left -= size
            blocks.append(allocated(size, self.handles[0]))
        drawn.shuffle(blocks)
        blocks = [block for block in blocks if block is not None]
        freed = drawn.randrange(len(blocks) + 1)
        for block in blocks[:freed]:  # some of it is free again, and cached
            _raw_delete(block)
        self.filling = blocks[freed:]

    def end(self):
        for block in self.filling:
            _raw_delete(block)
        super().end()


def allocated(size, stream):
    try:
        return _raw_alloc(size, stream)
    except torch.OutOfMemoryError:
        return None


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


def usual_stream(snapshot):
    """The one that most memory is of, but for private pools'."""
    sizes = {}
    for segment in snapshot["segments"]:
        if not any(segment["segment_pool_id"]):
            sizes[segment["stream"]] = sizes.get(segment["stream"], 0) + segment["total_size"]
    return max(sizes, key=lambda stream: (sizes[stream], stream == 0), default=0)


def asked(size, stream):
    """The real answer; the block goes back to the cache."""
    before = counters()
    block = allocated(size, stream)
    after = counters()
    if block is not None:
        _raw_delete(block)
    rises = {name: after[name] - before[name] for name in before}
    return {"size": size, "succeeded": block is not None, **rises}


def main():
    first, count, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    torch.cuda.init()
    expandable = torch.cuda.memory._snapshot()["allocator_settings"]["expandable_segments"]
    streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(STREAMS - 1))]
    neighbour = Neighbour()
    with (folder / "states").open("w", encoding="utf-8") as written:
        for number in range(first, first + count):
            for state in states(random.Random(number), number, expandable, streams, neighbour):
                written.write(json.dumps(state) + "\n")
    neighbour.end()


def states(drawn, number, expandable, streams, neighbour):
    """Those of one program; each begins with what the request before has left."""
    others_bytes = int(torch.cuda.mem_get_info()[1] * drawn.uniform(0.05, 0.6)) if number % 3 == 0 else 0
    if others_bytes or neighbour.process is not None:
        neighbour.hold(others_bytes)
    trace = allocations.trace(number, expandable=expandable)
    torch.cuda.set_per_process_memory_fraction(trace.fraction)
    doer = Doer(streams, tensors=any(operation[0] in {USE, CAPTURE} for operation in trace.operations))
    doer.do_first(trace.operations, drawn.randrange(len(trace.operations)))
    if drawn.random() < 0.8:
        free, total = torch.cuda.mem_get_info()
        doer.fill(drawn, max(0, min(free, int(trace.fraction * total) - torch.cuda.memory_reserved())))
    for place in range(REQUESTS):
        (free, total), snapshot = torch.cuda.mem_get_info(), told(torch.cuda.memory._snapshot())
        state = {
            "number": number,
            "kind": trace.kind,
            "fraction": trace.fraction,
            "others_bytes": others_bytes,
            "free_bytes": free,
            "total_bytes": total,
            "reserved_bytes": torch.cuda.memory_reserved(),
            "snapshot": snapshot,
        }
        if place < RANDOM:
            size = sizes(drawn, snapshot, free)[place]
        else:  # the largest that is said to succeed, then one of 512 bytes more
            size = fits.space_of(state).largest.bytes_at_all + (place - RANDOM) * 512
        if size:
            yield {**state, "drawn": place < RANDOM, "asked": asked(size, usual_stream(snapshot))}
    doer.end()


if __name__ == "__main__":
    main()
