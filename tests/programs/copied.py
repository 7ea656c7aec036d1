"""A training that copies its model, of which nothing tells, after a few steps; and goes on until its input ends.

    copied.py none | kept | trained

The copy is not made, made and kept, or made and trained.
"""

from __future__ import annotations

import copy
import select
import sys
import time

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main(kind: str) -> None:
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).to(DEVICE)
    trained, number = [(model, torch.optim.Adam(model.parameters()))], 0
    kept = []
    while not select.select([sys.stdin], [], [], 0)[0]:
        for each, optimizer in trained:
            each(torch.randn(64, 256, device=DEVICE)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        number += 1
        if number == 40 and kind != "none":
            kept.append(copy.deepcopy(model))
            if kind == "trained":
                trained.append((kept[0], torch.optim.Adam(kept[0].parameters())))
        time.sleep(0.02)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
