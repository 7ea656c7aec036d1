"""Trains a head in short steps behind an encoder that no optimizer has, nor was frozen: its gradients pile up.

`gradients_of_nobody.py`; with `late` its optimizer is a class of its own, and another thread is there from the start.
Prints "ready", then how many bytes of gradients there are, and goes on until its standard input ends.
"""

from __future__ import annotations

import sys
import threading
import time

import torch


class Descent:
    """An optimizer that torch knows nothing of."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        self.parameters = parameters

    @torch.no_grad()
    def step(self) -> None:
        """Changes the parameters, and keeps their gradients."""
        for parameter in self.parameters:
            parameter.sub_(parameter.grad, alpha=1e-6)
            parameter.grad.zero_()


def main() -> None:
    """Steps until nobody listens."""
    torch.set_num_threads(1)
    encoder, head = torch.nn.Linear(512, 64), torch.nn.Linear(64, 8)
    late = sys.argv[1:] == ["late"]
    optimizer = Descent(list(head.parameters())) if late else torch.optim.SGD(head.parameters(), 1e-6)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    told = False
    print("ready", flush=True)
    while not ended.is_set():
        head(encoder(torch.ones(4, 512))).sum().backward()
        if not told:
            held = [*encoder.parameters(), *head.parameters()]
            print(sum(parameter.grad.nbytes for parameter in held if parameter.grad is not None), flush=True)
            told = True
        optimizer.step()
        time.sleep(0.001)


main()
