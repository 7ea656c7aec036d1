"""One thread trains, and another one has a module whose gradients tell who asks: `gradients_of_others.py {late,naps}`.

Prints "ready"; then, for each line of standard input, how often the second thread's gradients were asked for since.
"""

from __future__ import annotations

import select
import sys
import threading
import time

import torch

ASKED: list[int] = []


class Telling(torch.nn.Parameter):
    """Notes each question for its gradient, which is dropped and made again all the time."""

    @property
    def grad(self) -> None:
        """Never there when it is asked for."""
        ASKED.append(threading.get_ident())


def train_without_optimizer() -> None:
    """Raw tensors: backward passes, and nothing that steps."""
    weight = torch.ones(64, 64, requires_grad=True)
    while True:
        (weight @ weight).sum().backward()
        weight.grad = None
        time.sleep(0.001)


def train() -> None:
    """Short steps that are all alike, in between which the agent naps."""
    model = torch.nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    while True:
        model(torch.ones(4, 32)).sum().backward()
        optimizer.step()
        model.zero_grad()
        time.sleep(0.001)


def main() -> None:
    """Answers on this thread, whose module it is."""
    torch.set_num_threads(1)
    module = torch.nn.Linear(8, 8)
    del module.weight
    module.weight = Telling(torch.ones(8, 8))
    optimizer = torch.optim.SGD(module.parameters())
    target = train if sys.argv[1] == "naps" else train_without_optimizer
    threading.Thread(target=target, daemon=True).start()
    print("ready", flush=True)
    while optimizer is not None:
        # Never long in one call: whoever gets in waits until this thread is back in Python.
        if select.select([sys.stdin], [], [], 0.01)[0]:
            if not sys.stdin.readline():
                return
            print(len(ASKED), flush=True)
            ASKED.clear()


main()
