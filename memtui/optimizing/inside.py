"""Runs an optimizer's own `step` on meta tensors. Standard library and torch: for the training's own interpreter.

Reads a request on standard input and answers on standard output, both JSON; what imported modules print goes nowhere.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import json
import os
import sys
import time
import weakref
from typing import Any, Callable, Optional

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Values of tensors decide what some optimizers do. Each place that asks is tried with either answer, up to so long.
_TRYING_SECONDS = 20.0
_MOST_PLACES = 40
STATE_DEPTH = 3
_HERE = os.path.abspath(__file__)
_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
_OPTIMIZERS = os.path.join(_TORCH, "optim", "")


class Ledger:
    """Storages as they are made and freed, numbered in their order: n makes number n of `sizes`, -n - 1 frees it."""

    def __init__(self) -> None:
        self.events: list[int] = []
        self.sizes: list[int] = []
        self._known: dict[int, int] = {}
        self._watched: dict[int, Any] = {}

    def see(self, tensor: Any) -> None:
        """Notes the storage of a meta tensor, if that is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        number = len(self.sizes)
        self.sizes.append(int(storage.nbytes()))
        self.events.append(number)
        self._known[key] = number

        def freed(_: Any, key: int = key, number: int = number) -> None:
            self._known.pop(key, None)
            self._watched.pop(number, None)
            self.events.append(-number - 1)

        self._watched[number] = weakref.ref(storage, freed)

    def skip(self, tensor: Any) -> None:
        """This one was there before."""
        self.see(tensor)
        self.events.pop()

    def number(self, tensor: Any) -> Optional[int]:
        """Its number."""
        return self._known.get(tensor.untyped_storage()._cdata)


class Watch(TorchDispatchMode):  # type: ignore[misc]  # torch may not be there when types are checked
    """Writes storages down, and answers where a program asks for a value that no meta tensor has."""

    def __init__(self, ledger: Ledger, answers: Answers) -> None:
        super().__init__()
        self._ledger, self._answers = ledger, answers

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name == "aten::_local_scalar_dense" and args[0].is_meta:
            return self._answers.value(args[0].dtype)
        if name.startswith("aten::_fused_"):
            return None  # they work in place
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, torch.Tensor) and leaf.is_meta:
                self._ledger.see(leaf)
        return found


class Answers:
    """What is answered for values: no number twice, and of a comparison what its place in the code is given."""

    def __init__(self, yes: frozenset[str]) -> None:
        self.places: dict[str, None] = {}
        self._yes = yes
        self._numbers = itertools.count(1)

    def value(self, dtype: Any) -> Any:
        """For one element of this type."""
        if dtype == torch.bool:
            place = _place()
            self.places[place] = None
            return place in self._yes
        number = next(self._numbers)
        return 1.0 + number / 16 if dtype.is_floating_point else number


def _place() -> str:
    """Where outside torch's own machinery a value is asked for."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name != _HERE and (not name.startswith(_TORCH) or name.startswith(_OPTIMIZERS)):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class Trial:
    """Two steps of a new optimizer of a class, with its groups and the attributes of the real one."""

    def __init__(self, kind: Any, request: dict[str, Any], yes: frozenset[str]) -> None:
        self._request, self.answers, self._ledger = request, Answers(yes), Ledger()
        self._on_device = any(_on_device(group["options"]) for group in request["groups"])
        self.optimizer = self._made(kind)
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                self._ledger.skip(parameter)
                self._ledger.skip(parameter.grad)
        self._state()
        self._eager = self._state()  # made by the constructor, and so there already
        self.errors: list[str] = []

    def _made(self, kind: Any) -> Any:
        groups = [
            {**_options(group["options"], group["device"]), "params": _parameters(group["parameters"])}
            for group in self._request["groups"]
        ]
        options = {name: value for name, value in groups[0].items() if name != "params"}
        takes = inspect.signature(kind).parameters
        try:
            made = kind(groups, **{name: value for name, value in options.items() if name in takes})
        except Exception:  # noqa: BLE001 - a constructor of the program's, called without arguments of its own
            made = kind.__new__(kind)
            torch.optim.Optimizer.__init__(made, groups, options)
        for name, value in self._request["attributes"].items():
            with contextlib.suppress(AttributeError, TypeError):
                setattr(made, name, value)
        # Options of a group that the constructor has filled in or changed are the program's again.
        for group, asked in zip(made.param_groups, groups):
            group.update({name: value for name, value in asked.items() if name != "params"})
        return made

    def step(self) -> tuple[list[int], bool]:
        """One step, group by group: an error in one leaves the others; its events, and whether there was none."""
        self._ledger.events.clear()
        errors = len(self.errors)
        step = type(self.optimizer).step
        while hasattr(step, "__wrapped__"):
            step = step.__wrapped__
        wants = [each.default is inspect.Parameter.empty for name, each in inspect.signature(step).parameters.items()][
            1:2
        ]
        groups = list(self.optimizer.param_groups)
        with torch.no_grad(), Watch(self._ledger, self.answers):
            for group in groups:
                self.optimizer.param_groups = [group]
                try:
                    step(self.optimizer, *[self._loss] * any(wants))
                except Exception as error:  # noqa: BLE001 - code of the program's, on tensors that it does not expect
                    self.errors.append(f"{type(error).__name__}: {error}"[:300])
        self.optimizer.param_groups = groups
        return list(self._ledger.events), len(self.errors) == errors

    @staticmethod
    def _loss() -> Any:
        return torch.empty((), device="meta")

    def _state(self) -> dict[int, int]:
        """Bytes on the device by a storage's number."""
        found: dict[int, int] = {}
        for held in list(self.optimizer.state.values()):
            self._add(found, held, 0, "")
        return found

    def _add(self, found: dict[int, int], value: Any, depth: int, name: str) -> None:
        if isinstance(value, torch.Tensor):
            if value.is_meta:
                number = self._ledger.number(value)
                if number is not None:
                    found[number] = value.untyped_storage().nbytes()
                else:
                    self._ledger.skip(value)  # the constructor's
            elif self._on_device and name == "step":
                # Of the fused and the capturable forms this one is on the device too.
                found[-1 - len(found)] = value.untyped_storage().nbytes()
        elif depth < STATE_DEPTH and isinstance(value, (dict, list, tuple)):
            items = value.items() if isinstance(value, dict) else (("", item) for item in value)
            for key, item in list(items):
                self._add(found, item, depth + 1, str(key))

    def state(self) -> list[int]:
        """Sizes of the state's tensors that steps have made, in bytes."""
        return [size for number, size in self._state().items() if number not in self._eager or number < 0]

    @property
    def everywhere(self) -> bool:
        """Whether every parameter has state, and all have as much of it."""
        held = [self.optimizer.state.get(each) for group in self.optimizer.param_groups for each in group["params"]]
        return all(held) and len({len(each) for each in held if each is not None}) == 1

    def sizes(self) -> list[int]:
        """Of all storages, by number."""
        return self._ledger.sizes


def _on_device(options: dict[str, Any]) -> bool:
    return bool(options.get("fused") or options.get("capturable"))


def _options(options: dict[str, Any], device: str) -> dict[str, Any]:
    """The options of a group, as they act on the device that it is really on."""
    found = dict(options)
    if "foreach" in found:
        on_host = device == "host"
        chosen = found["foreach"] is True or (found["foreach"] is None and not on_host)
        # Torch chooses by the kind of device, which a meta tensor has not.
        found["foreach"] = chosen and not found.get("fused")
    for name in ("fused", "capturable"):
        if name in found:
            found[name] = False
    return found


def _parameters(runs: list[dict[str, Any]]) -> list[Any]:
    found = []
    for run in runs:
        dtype = getattr(torch, run["dtype"])
        for _ in range(run["count"]):
            parameter = torch.nn.Parameter(torch.empty(run["shape"], dtype=dtype, device="meta"))
            parameter.grad = torch.empty_like(parameter)
            found.append(parameter)
    return found


def best(make: Callable[[frozenset[str]], Trial]) -> tuple[Trial, tuple[list[int], bool]]:
    """The trial that makes the most state, among the answers to what values decide; with its first step."""
    end = time.monotonic() + _TRYING_SECONDS
    yes: frozenset[str] = frozenset()
    trial = make(yes)
    first = trial.step()
    waiting, tried = list(trial.answers.places), set(trial.answers.places)
    while waiting and len(tried) <= _MOST_PLACES and time.monotonic() < end:
        place = waiting.pop(0)
        other = make(yes | {place})
        stepped = other.step()
        if sum(other.state()) > sum(trial.state()):
            trial, first, yes = other, stepped, yes | {place}
        new = [found for found in other.answers.places if found not in tried]
        tried.update(new)
        waiting += new
    return trial, first


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What the request's optimizer makes on its device."""
    if request["folder"]:
        sys.path.insert(0, request["folder"])
    module, _, name = request["where"].partition(":")
    try:
        kind: Any = importlib.import_module(module)
        for part in name.split("."):
            kind = getattr(kind, part)
    except Exception as error:  # noqa: BLE001 - a module of the program's is run
        return {"refused": f"{module} could not be imported: {type(error).__name__}: {error}"[:300]}
    trial, (events, whole) = best(lambda yes: Trial(kind, request, yes))
    state, decided = trial.state(), bool(trial.answers.places)
    if trial.errors and not (state and trial.everywhere):
        return {"refused": f"its step does not run on meta tensors: {trial.errors[0]}"}
    later, whole_later = trial.step()
    fused = any(group["options"].get("fused") for group in request["groups"])
    return {
        "state": state,
        "sizes": trial.sizes(),
        "first": events if whole and not fused else None,
        "later": later if whole_later and not fused else [] if fused else None,
        "decided": decided,
    }


def main() -> None:
    """Answers one request."""
    sys.path.pop(0)  # this file's folder is nothing to the program
    request = json.load(sys.stdin)
    told = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    torch.set_num_threads(1)
    with open(told, "w", encoding="utf-8") as out:
        json.dump(answer(request), out)
        out.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
