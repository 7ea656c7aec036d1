"""Finds root modules and optimizers that nothing announced: one pass over the heap's objects, by their type."""

from __future__ import annotations

import gc
import itertools
import sys
import time
import weakref
from dataclasses import dataclass
from typing import Any, Optional

#: After this long the search ends with what it has found: the training waits for it.
_MOST_NS = 150_000_000
#: Of Python's own memory. Listing the objects of a heap that has more would alone take about as long.
_MOST_BLOCKS = 5_000_000
#: Objects that are looked at at once, and let go while the processor still has them in its cache.
_CHUNK = 2048


@dataclass
class Found:
    """What a scan found, how many objects it looked at and how long the training's thread waited for it."""

    roots: list[Any]
    optimizers: list[Any]
    objects: int
    pause_ns: int
    complete: bool  # else the heap is too large, and the rest of it was not looked at


def scan(torch: Any) -> Found:
    """Every root module with parameters, and every optimizer. Once, on the training's thread.

    In a heap that is too large for that, those that were reached and those that the main module's variables name.
    """
    begun = time.perf_counter_ns()
    module_types = _subclasses(torch.nn.Module)
    optimizer_types = _subclasses(torch.optim.Optimizer)
    hits, count, complete = _search(module_types | optimizer_types, begun + _MOST_NS)
    modules = [hit for hit in hits if type(hit) in module_types]
    children: set[int] = set()
    for module in modules:
        children.update(map(id, (module.__dict__.get("_modules") or {}).values()))
    roots = [module for module in modules if id(module) not in children and _has_parameters(module)]
    optimizers = [hit for hit in hits if type(hit) in optimizer_types]
    return Found(roots, optimizers, count, time.perf_counter_ns() - begun, complete)


def made_optimizers(torch: Any) -> Optional[Found]:
    """Every optimizer of a class that has instances; None where the heap is too large to be asked.

    The collector's own pass over the heap, for what refers to these classes: it takes half the time of a list of all
    objects, and no memory.
    """
    begun = time.perf_counter_ns()
    kinds = _subclasses(torch.optim.Optimizer)
    # What torch wraps a class's `step` in when its first instance is made.
    made = {kind for kind in kinds if getattr(getattr(kind, "step", None), "hooked", False)}
    if made and sys.getallocatedblocks() > _MOST_BLOCKS:
        return None
    found = [each for each in gc.get_referrers(*made) if type(each) in made] if made else []
    return Found([], found, 0, time.perf_counter_ns() - begun, complete=True)


def _search(wanted: set[type], end_ns: int) -> tuple[list[Any], int, bool]:
    """(objects of these types, objects looked at, whether these were all)."""
    hits: list[Any] = []
    count = 0
    # The list keeps the whole heap alive: it shrinks as it is gone through, and is gone with this function.
    objects = gc.get_objects() if sys.getallocatedblocks() <= _MOST_BLOCKS else None
    while objects and time.perf_counter_ns() < end_ns:
        chunk = objects[-_CHUNK:]
        del objects[-_CHUNK:]
        count += len(chunk)
        hits += itertools.compress(chunk, map(wanted.__contains__, map(type, chunk)))
    if objects or objects is None:
        known = set(map(id, hits))
        named = list(vars(sys.modules["__main__"]).values())
        hits += [value for value in named if type(value) in wanted and id(value) not in known]
        return hits, count, False
    return hits, count, True


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
