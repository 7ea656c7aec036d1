"""A multilayer perceptron with Adam, measured at the five points at which such a run is usually explained.

25,175,040 parameters and a batch of 2,048: small enough for any GPU, large enough that every tenant shows.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from torch import nn


def main() -> None:
    """Trains a few steps; prints allocated and reserved bytes at each point of the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--hold", type=float, default=0.0, help="seconds to stay at each point")
    parser.add_argument("--optimizer", choices=("adam", "sgd", "momentum"), default="adam")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def point(name: str) -> None:
        if device == "cuda":
            print(f"{name} {torch.cuda.memory_allocated()} {torch.cuda.memory_reserved()}", flush=True)
        else:
            print(name, flush=True)
        time.sleep(arguments.hold)

    torch.manual_seed(0)
    layers = (nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1024))
    model = nn.Sequential(*layers).to(device)
    point("model")
    optimizer: torch.optim.Optimizer
    if arguments.optimizer == "adam":
        optimizer = torch.optim.Adam(model.parameters())
    else:
        momentum = 0.9 if arguments.optimizer == "momentum" else 0.0
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    inputs = torch.randn(arguments.batch, 1024, device=device)
    for _ in range(arguments.steps):
        loss = model(inputs).pow(2).mean()
        point("forward")
        loss.backward()
        point("backward")
        optimizer.step()
        point("step")
        optimizer.zero_grad()
    if device == "cuda":
        print(f"peak {torch.cuda.max_memory_allocated()}", file=sys.stderr)


if __name__ == "__main__":
    main()
