"""What a frame says of free blocks: told by the sums of torch's segments, it is what their blocks add up to."""

from __future__ import annotations

import pytest

from tests.support.virtual_gpu import virtual_environment
from tests.virtual_gpu.conftest import RunChild

pytestmark = pytest.mark.virtual_gpu

SOURCE = """
import json, random, torch
from memtui.agent.blocks import Blocks
chance, side, pool = random.Random(1), torch.cuda.Stream(), torch.cuda.MemPool()
def some(count):
    return [torch.empty(chance.randrange(1, 6 << 20), dtype=torch.uint8, device="cuda") for _ in range(count)]
held = some(60)
with torch.cuda.use_mem_pool(pool):
    pooled = some(20)
for each in held[::7] + pooled[::5]:
    each.record_stream(side)
each = None
del held[::3], pooled[::2]
segments = torch.cuda.memory_snapshot()
sums = dict.fromkeys(("inactive", "active_allocated", "pending"), 0)
largest = idle = split = pinned = 0
for segment in segments:
    blocks = segment["blocks"]
    free = [block["size"] for block in blocks if block["state"] == "inactive"]
    for block in blocks:
        sums[block["state"] if block["state"] in sums else "pending"] += block["size"]
    if tuple(segment["segment_pool_id"]) != (0, 0):
        idle += sum(free)
        continue
    largest = max([largest, *free])
    if free and len(free) < len(blocks):
        pinned, split = pinned + 1, split + sum(free)
told = vars(Blocks(segments).summary(7))
right = {
    "age_ns": 7, "num_segments": len(segments), "num_blocks": sum(len(segment["blocks"]) for segment in segments),
    "largest_free_block_bytes": largest, "reusable_cache_bytes": sums["inactive"] - idle - split,
    "inactive_split_bytes": split, "private_pool_idle_bytes": idle, "active_pending_free_bytes": sums["pending"],
    "num_pinned_segments": pinned,
}
print(json.dumps([told, right]))
"""


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_free_blocks_are_counted_by_the_sums_of_their_segments(settings: str, run_child: RunChild) -> None:
    environment = virtual_environment(memory="24GiB") | {"PYTORCH_CUDA_ALLOC_CONF": settings}
    told, right = run_child(SOURCE, environment)
    assert told == right
    for name in (
        "largest_free_block_bytes",
        "inactive_split_bytes",
        "private_pool_idle_bytes",
        "active_pending_free_bytes",
    ):
        assert told[name] > 0, name
