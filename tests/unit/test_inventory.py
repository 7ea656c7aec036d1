"""What the agent tells of optimizer state as it appears, and when it reads gradients."""

from __future__ import annotations

import threading
from collections import deque

import pytest

from memtui.agent.inventory import Inventory
from memtui.agent.observer import Observer
from memtui.agent.phases import Phases
from memtui.wire.frames import Event

torch = pytest.importorskip("torch")


def test_state_is_compared_with_the_parameters_it_was_made_for() -> None:
    """GIVEN a frozen base and two optimizers, one after the other, THEN each jump is of its own parameters."""
    base, first, second = (torch.nn.Linear(64, 64, bias=False) for _ in range(3))
    base.requires_grad_(False)
    optimizers = [torch.optim.Adam(module.parameters(), foreach=False) for module in (first, second)]
    events: deque[Event] = deque()
    inventory = Inventory(torch, events)
    inventory.roots.merge([torch.nn.Sequential(base, first, second)])
    phases = Phases(0)
    for optimizer in optimizers:
        inventory.meet(optimizer)
    inventory.describe(phases, 0)
    for now_ns, (module, optimizer) in enumerate(zip((first, second), optimizers), 1):
        module(torch.ones(2, 64)).sum().backward()
        optimizer.step()
        inventory.steps[id(optimizer)] = 1
        inventory.describe(phases, now_ns)

    size = 64 * 64 * 4
    assert [event.figures["parameter_bytes"] for event in events] == [size, size]
    assert all(0 <= event.figures["state_bytes"] - 2 * size <= 64 for event in events)  # and the step's count


def test_a_backward_pass_waits_for_whoever_reads_gradients() -> None:
    """Also that of the thread that is followed by now: who reads may have been followed when it began."""
    observer = Observer(torch, lambda: None)
    inventory = observer.inventory
    assert observer.backward_started()  # from now on this is the thread that is followed
    begun, order = threading.Event(), []

    def read() -> None:
        with inventory.reading() as gradients:
            order.append(f"read: {gradients}")
            begun.set()
            threading.Event().wait(0.2)
            order.append("has read")

    reader = threading.Thread(target=read)
    reader.start()
    begun.wait()
    observer.backward_started()
    order.append("backward")
    reader.join()
    assert order == ["read: True", "has read", "backward"]
    with inventory.reading() as gradients:
        assert not gradients  # several threads run backward passes
        observer.backward_started()  # as in a signal handler: it does not wait for itself
    inventory.forget()
    assert not inventory.reader


def test_gradients_are_not_read_by_two_at_once() -> None:
    inventory = Inventory(torch, deque())
    with inventory.reading() as first, inventory.reading() as second:
        assert first
        assert not second
    with inventory.reading() as again:
        assert again
