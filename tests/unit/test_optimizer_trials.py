"""What optimizers make at their first step, told before it: by their own step on tensors without memory."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from memtui import optimizing
from memtui.agent import REHEARSAL
from memtui.agent.identity import describe, device_and_bytes
from memtui.agent.recipes import recipe_of
from memtui.sources import optimizer_trials
from memtui.sources.environ import environment_of
from memtui.sources.optimizer_trials import figures_of, request_of
from memtui.wire.frames import Recipe
from tests.programs import optimizers as others
from tests.support import programs

torch = pytest.importorskip("torch")
inside = pytest.importorskip("memtui.optimizing.inside")


def _model() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(30, 70), torch.nn.Linear(70, 5), torch.nn.Linear(5, 1, bias=False))


def _optimizers() -> dict[str, Any]:
    kinds, flat = torch.optim, {"tolerance_change": 0, "tolerance_grad": 0}
    return {
        "SGD": lambda model: kinds.SGD(model.parameters(), 0.1),
        "SGD with momentum": lambda model: kinds.SGD(model.parameters(), 0.1, momentum=0.9),
        "Adam, two groups": lambda model: kinds.Adam(
            [{"params": model[0].parameters()}, {"params": model[1:].parameters(), "amsgrad": True}]
        ),
        "LBFGS": lambda model: kinds.LBFGS(model.parameters(), **flat),
        "LBFGS, short": lambda model: kinds.LBFGS(model.parameters(), history_size=3, **flat),
        "8-bit": lambda model: others.Blockwise(model.parameters(), block=64),
        "factored": lambda model: others.Factored(model.parameters()),
        "with a closure": lambda model: others.Asking(model.parameters()),
    }


def _state(optimizer: Any) -> dict[int, int]:
    """Bytes by storage, but for the counts of steps, which Adam keeps on the host wherever its parameters are."""
    found: dict[int, int] = {}

    def add(value: Any, name: str) -> None:
        if isinstance(value, torch.Tensor) and name != "step":
            storage = value.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        elif isinstance(value, (dict, list, tuple)):
            for key, item in value.items() if isinstance(value, dict) else (("", item) for item in value):
                add(item, key)

    for held in optimizer.state.values():
        add(held, "")
    return found


def _closure(model: Any, optimizer: Any) -> Any:
    inputs = torch.randn(40, 30, generator=torch.Generator().manual_seed(1))

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (model(inputs).exp() + model(inputs).pow(4)).sum()
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("name", list(_optimizers()))
def test_the_state_is_told_to_the_byte_before_the_first_step(name: str) -> None:
    torch.manual_seed(0)
    model = _model()
    optimizer = _optimizers()[name](model)
    recipe = recipe_of(optimizer, device_and_bytes)
    assert recipe is not None
    there = sum(_state(optimizer).values())
    answer = inside.answer(json.loads(json.dumps(request_of(recipe, "host"))))
    closure = _closure(model, optimizer)
    closure()
    optimizer.step(closure) if name in {"LBFGS", "LBFGS, short", "with a closure"} else optimizer.step()
    assert sum(answer["state"]) == sum(_state(optimizer).values()) - there
    assert answer["decided"] == name.startswith("LBFGS")


def test_another_device_has_its_own_parameters_only() -> None:
    optimizer = torch.optim.AdamW(_model().parameters())
    recipe = recipe_of(optimizer, device_and_bytes)
    assert recipe is not None
    assert not request_of(recipe, "cuda:0")["groups"]


def test_the_training_s_interpreter_answers() -> None:
    optimizer = others.Blockwise(_model().parameters(), block=64)
    recipe = recipe_of(optimizer, device_and_bytes)
    assert recipe is not None
    program = pathlib.Path(optimizing.__file__).with_name("inside.py")
    request = json.dumps(request_of(recipe, "host"))
    done = subprocess.run([sys.executable, str(program)], input=request, capture_output=True, text=True, check=True)
    figures = figures_of(json.loads(done.stdout))
    optimizer.zero_grad()
    assert figures["state_bytes"] > 0
    assert figures["later_bytes"] < figures["first_bytes"]


def test_a_class_that_cannot_be_imported_is_refused() -> None:
    recipe = Recipe("nowhere.at_all:Kind", "", {}, ())
    answer = inside.answer(request_of(recipe, "cuda:0"))
    assert "nowhere" in figures_of(answer)["reason"]


@pytest.mark.parametrize(
    ("where", "executable", "said"),
    [
        ("__main__:Mine", sys.executable, "in the script itself"),
        ("module:make.<locals>.Mine", sys.executable, "inside a function"),
        ("torch.optim:Adam", "/bin/true", "its interpreter cannot be run from here"),
        ("torch.optim:Adam", "", "its interpreter cannot be run from here"),
    ],
)
def test_what_is_not_tried_says_why(where: str, executable: str, said: str) -> None:
    recipe = Recipe(where, "", {}, ())
    assert said in optimizer_trials._refusal(os.getpid(), executable, recipe)


def test_of_a_program_that_is_only_tried_out_nothing_is_run() -> None:
    """Outside of the layer that is thrown away, what it imports could be written anywhere."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={REHEARSAL: "0"}) as child:
        programs.wait_for(lambda: set(environment_of(child.pid)) == {REHEARSAL}, 10, "the program's start")
        refusal = optimizer_trials._refusal(child.pid, sys.executable, Recipe("torch.optim:Adam", "", {}, ()))
        child.kill()
    assert "only tried out" in refusal


def test_nothing_of_another_user_s_process_is_run() -> None:
    if os.geteuid() == 0:
        pytest.skip("every process is root's own or may be")
    assert "another user" in optimizer_trials._refusal(1, sys.executable, Recipe("torch.optim:Adam", "", {}, ()))


def test_a_recipe_goes_over_the_wire() -> None:
    from memtui.wire import codec
    from memtui.wire.frames import Model, Optimizer

    optimizer = torch.optim.AdamW(_model().parameters(), betas=(0.5, 0.6))
    recipe = recipe_of(optimizer, device_and_bytes)
    told = Optimizer("AdamW", {}, {"host": 1}, 1, recipe=recipe)
    model = codec.from_json(codec.to_json(Model(1, (), 1, 1, {}, {}, (told,))))
    back = model.optimizers[0].recipe
    assert request_of(back, "host") == json.loads(json.dumps(request_of(dataclasses.replace(recipe), "host")))


def test_parameters_without_a_shape_are_no_error() -> None:
    """GIVEN a lazy layer among an optimizer's parameters, THEN there is no recipe, and the model is told."""
    model = torch.nn.Sequential(torch.nn.LazyLinear(8), torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert recipe_of(optimizer, device_and_bytes) is None
    told = describe(torch, [model], [optimizer], {}, 1)
    assert [each.name for each in told.optimizers] == ["SGD"]


def test_what_is_not_plain_is_left_out() -> None:
    optimizer = torch.optim.SGD(_model().parameters(), 0.1)
    optimizer.huge, optimizer.names, optimizer.deep = 1 << 70, ["a", "b" * 1000], [[1]]
    optimizer.block = 256
    recipe = recipe_of(optimizer, device_and_bytes)
    assert recipe is not None
    assert recipe.attributes == {"block": 256}
