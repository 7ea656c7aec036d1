"""A GPT as a plan meets it: `planned.py --batch-size N [--layers N --width N --heads N --vocabulary N]`."""

from __future__ import annotations

import argparse

import torch
from torch.nn import functional

from memtui.examples.gpt import GPT


def main() -> None:
    """Trains it for some steps; the model is made on the device."""
    parser = argparse.ArgumentParser()
    for name, usual in (("batch-size", 8), ("layers", 12), ("width", 768), ("heads", 12), ("vocabulary", 50257)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    with torch.device("cuda"):
        model = GPT(options.vocabulary, options.layers, options.width, options.heads, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(options.steps):
        tokens = torch.randint(0, options.vocabulary, (options.batch_size, 1024), device="cuda")
        functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    main()
