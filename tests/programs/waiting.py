"""Forward and backward of an 8-bit optimizer's training; its first step waits until the file that is named is there."""

from __future__ import annotations

import pathlib
import sys
import time

import optimizers
import torch

WIDTH, LAYERS = 1024, 3


def main() -> None:
    """Two steps."""
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).cuda()
    optimizer = optimizers.Blockwise(model.parameters(), block=256)
    for step in range(2):
        optimizer.zero_grad()
        model(torch.zeros(8, WIDTH, device="cuda")).sum().backward()
        while not (step or pathlib.Path(sys.argv[1]).exists()):
            time.sleep(0.05)
        optimizer.step()
    time.sleep(0.5)


if __name__ == "__main__":
    main()
