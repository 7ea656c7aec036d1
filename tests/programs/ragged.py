"""Trains a small GPT on batches of many lengths, and keeps a summary of each: what is free beside them is stuck.

    ragged.py PACE SECONDS

A step takes about PACE seconds longer than its calculations. Its first line is what the allocator may have of the
device. Knows nothing of memtui but its example model.
"""

from __future__ import annotations

import collections
import random
import sys
import time

import torch
from torch.nn import functional

from memtui.examples.gpt import GPT

CONTEXT, WORDS, BATCH, KEPT = 1024, 512, 8, 60


def main():
    pace, seconds = float(sys.argv[1]), float(sys.argv[2])
    drawn = random.Random(0)
    model = GPT(WORDS, layers=12, width=768, heads=12, context=CONTEXT).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    print(torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved(), flush=True)
    summaries = collections.deque(maxlen=KEPT)
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        length = drawn.randrange(64, CONTEXT)
        batch = torch.randint(WORDS, (BATCH, length + 1)).to("cuda")
        scores = model(batch[:, :-1])
        summaries.append(scores[:, -96:].detach().clone())  # made while the activations are there
        loss = functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        time.sleep(0.4 * pace)
        loss.backward()
        time.sleep(0.4 * pace)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del scores, loss, batch
        time.sleep(0.2 * pace)


if __name__ == "__main__":
    main()
