"""Does random programs with torch's caching allocator and writes what it answered.

    allocator.py FIRST COUNT FOLDER

`counters` has a line of JSON for each of them, `addresses` where every block was put, 8 bytes each, -1 where there was
not memory enough, and `device` what the device has. Each begins with an allocator that holds nothing.
"""

from __future__ import annotations

import array
import json
import pathlib
import sys

import torch

from tests.support import allocations
from tests.support.allocations import ALLOCATE, CAPTURE, CAPTURED, CAPTURED_STREAM, DROP, EMPTY, FREE, USE

_raw_alloc = torch._C._cuda_cudaCachingAllocator_raw_alloc
_raw_delete = torch._C._cuda_cudaCachingAllocator_raw_delete


class Doer:
    """Does one program's operations, with tensors or by the allocator's own calls."""

    def __init__(self, streams, tensors, addresses):
        self.streams, self.tensors, self.addresses = streams, tensors, addresses
        self.handles = [stream.cuda_stream for stream in streams]
        self.held = []
        self.pools, self.graph_pools, self.graphs = {}, {}, []

    def allocate(self, size, stream, pool):
        try:
            if pool:
                if pool not in self.pools:
                    self.pools[pool] = torch.cuda.MemPool()
                with torch.cuda.use_mem_pool(self.pools[pool]):
                    block = self.allocated(size, stream)
            else:
                block = self.allocated(size, stream)
        except torch.OutOfMemoryError:
            block = None
        self.held.append(block)
        if block is None:
            self.addresses.append(-1)
        else:
            self.addresses.append(block.data_ptr() if self.tensors else block)

    def allocated(self, size, stream):
        if not self.tensors:
            return _raw_alloc(size, self.handles[stream])
        with torch.cuda.stream(self.streams[stream]):
            return torch.empty(size, dtype=torch.uint8, device="cuda")

    def free(self, number):
        block, self.held[number] = self.held[number], None
        if block is not None and not self.tensors:
            _raw_delete(block)

    def use(self, number, stream):
        if self.held[number] is not None:
            self.held[number].record_stream(self.streams[stream])

    def capture(self, pool):
        graph = torch.cuda.CUDAGraph()
        if pool not in self.graph_pools:
            self.graph_pools[pool] = torch.cuda.graph_pool_handle()
        torch.cuda.set_stream(self.streams[CAPTURED_STREAM])  # the current one until the end, as in torch.cuda.graph
        graph.capture_begin(pool=self.graph_pools[pool])
        self.graphs.append(graph)

    def captured(self):
        self.graphs[-1].capture_end()
        torch.cuda.set_stream(self.streams[0])

    def do(self, operations):
        for operation, *words in operations:
            if operation == ALLOCATE:
                self.allocate(*words)
            elif operation == FREE:
                self.free(*words)
            elif operation == USE:
                self.use(*words)
            elif operation == EMPTY:
                torch.cuda.empty_cache()
            elif operation == DROP:
                self.pools.pop(words[0], None)
            elif operation == CAPTURE:
                self.capture(*words)
            elif operation == CAPTURED:
                self.captured()

    def end(self):
        for number in range(len(self.held)):
            self.free(number)
        self.pools.clear()
        self.graphs.clear()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        if torch.cuda.memory_reserved():  # what other streams used is free only now
            torch.cuda.empty_cache()
        assert not torch.cuda.memory_reserved(), torch.cuda.memory_reserved()


def counters():
    stats = torch._C._cuda_memoryStats(0)
    found = {"num_alloc_retries": stats["num_alloc_retries"], "num_ooms": stats["num_ooms"]}
    for name in ("allocated", "reserved"):
        bytes_ = stats[f"{name}_bytes"]["all"]
        found |= {f"{name}_bytes": bytes_["current"], f"peak_{name}_bytes": bytes_["peak"]}
    return found


def main():
    first, count, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    torch.cuda.init()
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    device = {"free_bytes": free_bytes, "total_bytes": total_bytes, "settings": settings}
    (folder / "device").write_text(json.dumps(device), encoding="utf-8")
    streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(allocations.STREAMS - 1))]
    with (folder / "counters").open("w", encoding="utf-8") as said, (folder / "addresses").open("wb") as placed:
        for number in range(first, first + count):
            trace = allocations.trace(number, expandable=settings["expandable_segments"])
            torch.cuda.set_per_process_memory_fraction(trace.fraction)
            torch.cuda.reset_peak_memory_stats()
            before = counters()
            addresses = array.array("q")
            # What is captured depends on the current stream, of which the allocator's own calls do not know.
            tensors = any(operation[0] in {USE, CAPTURE} for operation in trace.operations)
            doer = Doer(streams, tensors, addresses)
            doer.do(trace.operations)
            after = counters()
            for name in ("num_alloc_retries", "num_ooms"):
                after[name] -= before[name]
            said.write(json.dumps(after) + "\n")
            addresses.tofile(placed)
            doer.end()


if __name__ == "__main__":
    main()
