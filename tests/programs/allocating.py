"""Does what it is told with torch's caching allocator, and says after each time what that says of itself.

    allocating.py < OPERATIONS

A line of JSON each. Operations: ["allocate", NAME, BYTES, STREAM], ["free", NAME], ["record_stream", NAME, STREAM],
["empty_cache"], ["reset_peaks"], ["fraction", SHARE]. Streams are numbers, 0 is the default one. Knows nothing of
memtui.
"""

from __future__ import annotations

import json
import sys

import torch

torch.cuda.init()
streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(3))]
numbers = {stream.cuda_stream: number for number, stream in enumerate(streams)}
tensors: dict[str, torch.Tensor] = {}


def allocate(name, size, stream):
    with torch.cuda.stream(streams[stream]):
        tensors[name] = torch.empty(size, dtype=torch.uint8, device="cuda")


def free(name):
    tensors.pop(name, None)


def record_stream(name, stream):
    if name in tensors:  # else there was no memory for it
        tensors[name].record_stream(streams[stream])


def empty_cache():
    torch.cuda.empty_cache()


def reset_peaks():
    torch.cuda.reset_peak_memory_stats()


def fraction(share):
    torch.cuda.set_per_process_memory_fraction(share)


def told():
    stats = torch.cuda.memory_stats()
    return {
        "allocated_bytes": torch.cuda.memory_allocated(),
        "reserved_bytes": torch.cuda.memory_reserved(),
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "num_alloc_retries": stats["num_alloc_retries"],
        "num_ooms": stats["num_ooms"],
        "segments": [
            {
                **{name: segment[name] for name in ("address", "segment_type", "is_expandable", "segment_pool_id")},
                "stream": numbers[segment["stream"]],
                "blocks": [
                    {name: block[name] for name in ("size", "state", "requested_size")} for block in segment["blocks"]
                ],
            }
            for segment in torch.cuda.memory_snapshot()
        ],
    }


print(json.dumps({"free_bytes": torch.cuda.mem_get_info()[0], "total_bytes": torch.cuda.mem_get_info()[1]}))
print(json.dumps({"settings": torch.cuda.memory._snapshot()["allocator_settings"]}))
for line in sys.stdin:
    operation, *arguments = json.loads(line)
    failed = False
    try:
        globals()[operation](*arguments)
    except torch.OutOfMemoryError:
        failed = True
    print(json.dumps({"failed": failed, **told()}))
