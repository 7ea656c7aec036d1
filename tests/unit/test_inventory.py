"""What the agent tells of optimizer state as it appears, and when it reads gradients."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest

from memtui.agent.calls import Calls
from memtui.agent.identity import Walk
from memtui.agent.inventory import Inventory
from memtui.agent.names import Names
from memtui.agent.observer import Observer
from memtui.agent.phases import Phases
from memtui.agent.readable import NOTHING
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
            order.append(f"read: {gradients.everything}")
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
        assert gradients is NOTHING  # several threads run backward passes
        observer.backward_started()  # as in a signal handler: it does not wait for itself
    inventory.forget()
    assert not inventory.reader


def test_gradients_are_not_read_by_two_at_once() -> None:
    inventory = Inventory(torch, deque())
    with inventory.reading() as first, inventory.reading() as second:
        assert first.everything
        assert second is NOTHING
    with inventory.reading() as again:
        assert again.everything


@pytest.mark.parametrize("case", ["late", "naps"])
def test_of_gradients_only_those_that_the_thread_trains_are_read(case: str) -> None:
    """Where others may have gradients of which nothing was seen: once its own optimizer has stepped."""
    mine, free, theirs = (torch.nn.Linear(4, 4) for _ in range(3))
    own, other = torch.optim.SGD([*mine.parameters(), free.weight]), torch.optim.SGD(theirs.parameters())
    inventory = Inventory(torch, deque())
    inventory.roots.merge([mine, theirs])
    for optimizer in (own, other):
        inventory.meet(optimizer)
    with inventory.reading() as readable:
        assert readable.root(theirs)
    inventory.from_start, inventory.nap.used = case != "late", case == "naps"
    with inventory.reading() as readable:
        assert not any(map(readable.root, (mine, theirs)))
    inventory.steps[id(own)] = 1
    for module in (mine, free, theirs):
        for parameter in module.parameters():
            parameter.grad = torch.ones_like(parameter)
    with inventory.reading() as readable:
        assert [readable.root(mine), readable.root(theirs)] == [True, False]
        assert [readable.optimizer(own), readable.optimizer(other)] == [True, False]
        walk, names = Walk(torch, readable), Names(torch, readable)
        for each in (walk, names):
            each.roots([mine, theirs])
            each.optimizers([own, other])
    read = {parameter.grad.data_ptr() for parameter in (*mine.parameters(), free.weight)}
    assert set(walk.addresses().gradients) == read
    assert {address for address, (category, _) in names.owners().items() if category == "gradients"} == read
    joint = torch.nn.Sequential(mine, theirs)
    inventory.roots.child(joint, mine)
    with inventory.reading() as readable:
        assert readable.root(joint)  # what has come since is known
    own.add_param_group({"params": [theirs.weight]})
    with inventory.reading() as readable:
        assert readable.root(theirs)


def test_gradients_are_not_read_while_another_thread_drops_some() -> None:
    """GIVEN a thread inside `zero_grad`, THEN none are read, and afterwards they are."""
    begun, go = threading.Event(), threading.Event()

    class Slow(torch.nn.Parameter):  # type: ignore[misc]
        @property
        def grad(self) -> None:
            begun.set()
            go.wait(10)

    optimizer = torch.optim.SGD([Slow(torch.ones(2))])
    thread = threading.Thread(target=optimizer.zero_grad)
    inventory = Inventory(torch, deque())
    thread.start()
    begun.wait(10)
    with inventory.reading() as during:
        pass
    go.set()
    thread.join()
    with inventory.reading() as after:
        assert (during is NOTHING, after.everything) == (True, True)


def test_what_this_thread_alone_calls_is_read_without_an_optimizer() -> None:
    """GIVEN naps, THEN gradients of modules that it calls with gradients, from when it runs backward passes."""
    observer = Observer(torch, lambda: None)
    inventory = observer.inventory
    inventory.nap.used = True
    mine, shared, frozen, uncalled = modules = [torch.nn.Linear(4, 4) for _ in range(4)]
    inventory.roots.merge(modules)
    hooks = [module.__dict__["_forward_pre_hooks"] for module in modules]
    for each in hooks[:2]:
        observer._forward(each)
    with torch.no_grad():
        observer._forward(hooks[2])
    other = threading.Thread(target=observer._forward, args=(hooks[1],))
    other.start()
    other.join()
    with inventory.reading() as readable:
        assert not any(map(readable.root, modules))
    observer.backward_started()
    with inventory.reading() as readable:
        assert [readable.root(module) for module in (mine, shared, frozen, uncalled)] == [True, False, False, False]
    calls = Calls(modules)
    inventory.roots.revision += 1
    with inventory.reading() as readable:
        assert readable.root(mine)  # also while a step is recorded
    calls.take_out()


def test_a_dry_run_on_another_thread_is_no_training() -> None:
    """GIVEN a forward on one thread and a training on another, THEN that one's gradients are read; but not of three."""

    def train(observer: Observer) -> None:
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters())
        observer.backward_started()
        observer.optimizer_started(optimizer, (), {})

    def on_another(function: Any) -> None:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    for others in (0, 1):
        observer = Observer(torch, lambda: None)
        assert observer._mine()
        observer._boundary("forward_start", 1)
        begun, over = threading.Event(), threading.Event()

        def third(observer: Observer = observer, begun: Any = begun, over: Any = over) -> None:
            observer.backward_started()
            begun.set()
            over.wait(10)

        if others:
            threading.Thread(target=third).start()
            begun.wait(10)
        on_another(lambda observer=observer: train(observer))
        over.set()
        assert observer.inventory.alone == (not others)
