"""The search of a heap for modules and optimizers, also where it is too large to be searched."""

from __future__ import annotations

import gc
import sys
from collections import deque
from typing import Any

import pytest

from memtui.agent import discovery
from memtui.agent.inventory import Inventory
from memtui.agent.phases import Phases

pytestmark = pytest.mark.torch


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Any:
    torch = pytest.importorskip("torch")
    # What earlier tests left in this process's heap, and how busy the machine is, decide nothing here.
    monkeypatch.setattr(discovery, "_MOST_NS", 60_000_000_000)
    monkeypatch.setattr(discovery, "_MOST_BLOCKS", sys.maxsize)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    return torch, model, torch.optim.SGD(model.parameters(), 0.1)


def _has(found: list[Any], wanted: Any) -> bool:
    return any(each is wanted for each in found)


def test_roots_and_optimizers_are_found(training: Any) -> None:
    torch, model, optimizer = training
    found = discovery.scan(torch)
    assert found.complete
    assert _has(found.roots, model)
    assert not _has(found.roots, model[0])
    assert _has(found.optimizers, optimizer)
    assert found.objects > 10_000


@pytest.mark.parametrize(("name", "least"), [("_MOST_BLOCKS", 0), ("_MOST_NS", 0)])
def test_a_heap_that_is_too_large(training: Any, monkeypatch: pytest.MonkeyPatch, name: str, least: int) -> None:
    """Nothing is searched, or only as long as it may take; what the main module's variables name is found."""
    torch, model, optimizer = training
    monkeypatch.setattr(discovery, name, least)
    monkeypatch.setattr(sys.modules["__main__"], "a_model_of_this_test", model, raising=False)
    found = discovery.scan(torch)
    assert not found.complete
    assert found.objects == 0
    assert [each for each in found.roots if each is model]
    assert not _has(found.optimizers, optimizer)


def test_optimizers_that_were_made_are_found_without_a_list_of_the_heap(training: Any) -> None:
    """Also one of a class of the program's own, and one that waits among what refers to itself."""
    torch, model, optimizer = training

    class Own(torch.optim.Adam):  # type: ignore[misc, name-defined]
        pass

    own = Own(model.parameters())
    own.circle = [own]
    found = discovery.made_optimizers(torch)
    assert found is not None
    assert _has(found.optimizers, optimizer)
    assert _has(found.optimizers, own)
    assert not found.roots


def test_a_large_heap_is_not_gone_over_for_optimizers(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_MOST_BLOCKS", 0)
    assert discovery.made_optimizers(training[0]) is None


@pytest.mark.parametrize("announced", [True, False])
def test_the_heap_is_searched_where_an_optimizer_has_parameters_of_no_known_module(
    training: Any, announced: bool
) -> None:
    torch, model, _ = training
    inventory = Inventory(torch, deque())
    other = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD([*model.parameters(), *(() if announced else other.parameters())], 0.1)
    inventory.roots.add(model)
    gc.collect()  # optimizers of other tests
    inventory.discover(Phases(0), 1)
    assert inventory.met
    assert inventory.scanned is not announced
    assert any(each is optimizer for each in inventory.optimizers())
