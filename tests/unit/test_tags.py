"""What a program names itself: found while it lives, by its latest name, and kept alive by nothing."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

import memtui
from memtui.agent import dormant
from memtui.agent.tags import Tags


class Tensor:
    """As much of a tensor as naming it takes; like one, it cannot be compared with others."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("ambiguous")

    __hash__ = object.__hash__


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type("Module", (), {})
    stand_in = types.SimpleNamespace(Tensor=Tensor, nn=types.SimpleNamespace(Module=module))
    monkeypatch.setitem(sys.modules, "torch", stand_in)  # type: ignore[arg-type]


def names(tags: Tags) -> dict[str, str]:
    return {name: category for name, category, _ in tags.tagged()}


def test_containers_are_looked_through() -> None:
    tags, tensors = Tags(), [Tensor() for _ in range(4)]
    tags.add({"keys": tensors[:2], "pair": (tensors[2], 7)}, "cache", "inputs")
    tags.add(tensors[3], "mask", "buffers")
    wanted = {"cache.keys.0": "inputs", "cache.keys.1": "inputs", "cache.pair.0": "inputs", "mask": "buffers"}
    assert names(tags) == wanted


def test_the_dead_are_forgotten() -> None:
    tags, kept = Tags(), Tensor()
    tags.add(kept, "kept", "inputs")
    tags.add([Tensor() for _ in range(5)], "gone", "inputs")
    assert names(tags) == {"kept": "inputs"}
    del kept
    assert not tags


def test_naming_again_every_step_keeps_one() -> None:
    tags, tensor = Tags(), Tensor()
    for step in range(100):
        tags.add(tensor, f"batch {step}", "inputs")
    assert names(tags) == {"batch 99": "inputs"}
    assert len(tags._references) == 1


def test_a_structure_that_contains_itself_ends() -> None:
    tags: Tags = Tags()
    knot: list[Any] = [Tensor()]
    knot.append(knot)
    tags.add(knot, "knot", "inputs")
    assert len(names(tags)) == 1


def test_without_an_agent_nothing_happens_but_a_wrong_category_is_told() -> None:
    assert dormant.current() is None
    memtui.tag(object(), "anything")
    with pytest.raises(ValueError, match="no category 'kv'"):
        memtui.tag(Tensor(), "cache", category="kv")
