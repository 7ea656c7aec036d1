"""Finds root modules and optimizers that nothing announced: one pass over the heap's objects, by their type."""

from __future__ import annotations

import gc
import itertools
import time
import weakref
from dataclasses import dataclass
from typing import Any


@dataclass
class Found:
    """What a scan found, how many objects it looked at and how long the training's thread waited for it."""

    roots: list[Any]
    optimizers: list[Any]
    objects: int
    pause_ns: int


def scan(torch: Any) -> Found:
    """Every root module with parameters, and every optimizer. Once, on the training's thread."""
    begun = time.perf_counter_ns()
    module_types = _subclasses(torch.nn.Module)
    optimizer_types = _subclasses(torch.optim.Optimizer)
    wanted = module_types | optimizer_types
    objects = gc.get_objects()
    count = len(objects)
    hits = list(itertools.compress(objects, map(wanted.__contains__, map(type, objects))))
    del objects  # it keeps the whole heap alive
    modules = [hit for hit in hits if type(hit) in module_types]
    children: set[int] = set()
    for module in modules:
        children.update(map(id, (module.__dict__.get("_modules") or {}).values()))
    roots = [module for module in modules if id(module) not in children and _has_parameters(module)]
    optimizers = [hit for hit in hits if type(hit) in optimizer_types]
    return Found(roots, optimizers, count, time.perf_counter_ns() - begun)


def _has_parameters(module: Any) -> bool:
    if "_parameters" not in module.__dict__:
        return False  # its __init__ has not run to Module's
    return next(module.parameters(), None) is not None


def _subclasses(base: type) -> set[type]:
    found: set[type] = set()
    waiting = [base]
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            waiting.extend(type.__subclasses__(kind))
    return found


def reference(target: Any) -> Any:
    """A weak reference; a reference that is always dead where the object's class allows none."""
    try:
        return weakref.ref(target)
    except TypeError:
        return _gone


def _gone() -> None:
    return None
