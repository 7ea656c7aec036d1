"""A GPT's steps, until standard input ends; prints as JSON, in nanoseconds, how long each took, and how much processor
time of its thread.

recorded.py SECONDS

So long each step waits, as for a device: after forward and after backward.
"""

from __future__ import annotations

import json
import select
import sys
import time

import torch
from torch.nn import functional

from memtui.examples.gpt import GPT


def main() -> None:
    """Trains and prints."""
    waiting = float(sys.argv[1])
    torch.manual_seed(0)
    model = GPT(60, 12, 768, 12, 512).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    tokens = torch.zeros(16, 513, dtype=torch.long)

    def step() -> tuple[int, int]:
        begun, cpu = time.perf_counter_ns(), time.thread_time_ns()
        picked = tokens.cuda()
        loss = functional.cross_entropy(model(picked[:, :-1]).flatten(0, 1), picked[:, 1:].flatten())
        time.sleep(waiting / 2)
        loss.backward()
        time.sleep(waiting / 2)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter_ns() - begun, time.thread_time_ns() - cpu

    lengths = []
    while not select.select([sys.stdin], [], [], 0)[0]:
        lengths.append(step())
    print(json.dumps(lengths))


if __name__ == "__main__":
    main()
