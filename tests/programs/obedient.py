"""A small training that goes on by one word a line of its standard input, and holds still between them.

steps N: so many steps; leak N: so many, each of which leaves 1 MiB behind; figures: what torch itself counts, as JSON;
spike: 2 GiB that come and go; exhaust: a request that fails and is caught; retry: one that succeeds once the cache is
given back; fail: ends by an exception; leave. Each is answered by the figures.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time

import torch

GIB = 1 << 30


def figures() -> dict[str, int]:
    stats = torch.cuda.memory_stats()
    return {
        "allocated_bytes": torch.cuda.memory_allocated(),
        "reserved_bytes": torch.cuda.memory_reserved(),
        "active_bytes": stats["active_bytes.all.current"],
        "requested_bytes": stats["requested_bytes.all.current"],
        "inactive_split_bytes": stats["inactive_split_bytes.all.current"],
        "allocated_peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
        "num_ooms": stats["num_ooms"],
        "num_alloc_retries": stats["num_alloc_retries"],
    }


def main() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    print("ready", flush=True)
    for line in sys.stdin:
        word, _, count = line.strip().partition(" ")
        if word in ("steps", "leak"):
            for _ in range(int(count)):
                if word == "leak":
                    kept.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
                    time.sleep(0.01)  # enough of its steps are read
                model(torch.zeros(512, 1024, device="cuda")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        elif word == "spike":
            torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
        elif word == "exhaust":
            with contextlib.suppress(torch.OutOfMemoryError):
                torch.empty(100 * GIB, dtype=torch.uint8, device="cuda")
        elif word == "retry":
            free = torch.cuda.mem_get_info()[0]
            torch.empty(free // 2, dtype=torch.uint8, device="cuda")
            kept.append(torch.empty(free * 3 // 4, dtype=torch.uint8, device="cuda"))
        elif word == "fail":
            torch.empty(100 * GIB, dtype=torch.uint8, device="cuda")
        elif word == "leave":
            return
        print(json.dumps(figures()), flush=True)


if __name__ == "__main__":
    main()
