"""What the agent tells of optimizer state as it appears."""

from __future__ import annotations

from collections import deque

import pytest

from memtui.agent.inventory import Inventory
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
