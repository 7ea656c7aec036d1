"""GPT-2 with 1,558 million parameters gets its weights: a second whole copy on the GPU, or one tensor at a time.

The weights that a file would bring are empty tensors of the same sizes: loading allocates nothing else on the device.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from figures import on_device, say, tracked
from gpt2 import Gpt2, options


def make(arguments: argparse.Namespace) -> Any:
    """The model, no optimizer, and the loading."""
    model = on_device(lambda: Gpt2(arguments, 1600, 25, 48, bias=True, dropout=0.0))

    def load() -> None:
        if arguments.sequential:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(torch.empty_like(parameter))
        else:
            model.load_state_dict({name: torch.empty_like(tensor) for name, tensor in model.state_dict().items()})

    return model, None, load


def main() -> None:
    """Loads, or has that tracked."""
    parser = options(argparse.ArgumentParser())
    parser.add_argument("--sequential", action="store_true")
    arguments = parser.parse_args()
    if arguments.tracker:
        tracked(lambda: make(arguments), 1)
        return
    make(arguments)[2]()
    say()


if __name__ == "__main__":
    main()
