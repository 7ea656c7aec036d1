"""What it takes to make an optimizer like one of this process, elsewhere: so that its first step can be tried there."""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any, Callable, Optional

from ..wire.frames import ParameterGroup, ParameterRun, Recipe
from .pointers import NO_ADDRESS

_MOST_GROUPS, _MOST_RUNS = 64, 4096
_MOST_ITEMS, _MOST_CHARACTERS = 64, 200
_LARGEST = 1 << 63  # what is larger is no option of an optimizer, and no number of every JSON
_PLAIN = (bool, int, float, type(None))


def recipe_of(optimizer: Any, device_of: Callable[[Any], tuple[str, int, int]]) -> Optional[Recipe]:
    """The optimizer's recipe; None where it would be too long to be told, or something of it has no shape yet."""
    try:
        return _recipe(optimizer, device_of)
    except NO_ADDRESS:
        return None


def _recipe(optimizer: Any, device_of: Callable[[Any], tuple[str, int, int]]) -> Optional[Recipe]:
    kind = type(optimizer)
    groups: list[ParameterGroup] = []
    runs = 0
    for group in optimizer.param_groups:
        parameters = _runs(group["params"], device_of)
        runs += len(parameters)
        if len(groups) >= _MOST_GROUPS or runs > _MOST_RUNS:
            return None
        groups.append(ParameterGroup(_plain_of(group), parameters))
    where = f"{kind.__module__}:{kind.__qualname__}"
    return Recipe(where, _folder(kind.__module__), _plain_of(vars(optimizer)), tuple(groups))


def _runs(parameters: Any, device_of: Callable[[Any], tuple[str, int, int]]) -> tuple[ParameterRun, ...]:
    trained = (parameter for parameter in parameters if parameter.requires_grad)
    keys = ((*_form(getattr(one, "_local_tensor", one)), device_of(one)[0]) for one in trained)
    return tuple(ParameterRun(*key, sum(1 for _ in run)) for key, run in itertools.groupby(keys))


def _form(tensor: Any) -> tuple[tuple[int, ...], str]:
    return tuple(map(int, tensor.shape)), str(tensor.dtype).replace("torch.", "")


def _plain_of(items: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in list(items.items())
        if name != "params" and isinstance(name, str) and not name.startswith("_") and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if type(value) in {tuple, list}:
        return len(value) <= _MOST_ITEMS and all(map(_is_one, value))
    return _is_one(value)


def _is_one(value: Any) -> bool:
    if type(value) is str:
        return len(value) <= _MOST_CHARACTERS
    return type(value) in _PLAIN and (type(value) is not int or abs(value) < _LARGEST)


def _folder(module: str) -> str:
    """From where a module of the program's own is imported; "" for one of torch's, and for the main one."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file or module == "__main__" or module.partition(".")[0] == "torch":
        return ""
    folder = os.path.abspath(file)
    depth = module.count(".") + (os.path.basename(folder) == "__init__.py")
    for _ in range(depth + 1):
        folder = os.path.dirname(folder)
    return str(folder)
