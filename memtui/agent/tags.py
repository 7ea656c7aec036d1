"""What the program itself has given a name: tensors that no module and no optimizer holds."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

_DEPTH = 6
#: One call names no more tensors than this.
_MOST = 10_000
_NAME_LENGTH = 200


class _Reference(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to a tensor or module, with what it is called; equal to itself only, as tensors are not."""

    __slots__ = ("category", "name", "number")
    name: str
    category: str
    number: int
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Tags:
    """Tensors and modules by weak reference, with their names; the latest name of one counts."""

    def __init__(self) -> None:
        # What forgets a dead one is a C function: Python code there would be a place where a Ctrl-C gets lost.
        self._references: set[_Reference] = set()
        self._numbers = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._references)

    def add(self, what: Any, name: str, category: str) -> None:
        """Names a tensor, a module, or the tensors that a dict, list or tuple holds now."""
        torch: Any = sys.modules["torch"]
        kinds = (torch.Tensor, torch.nn.Module)
        for suffix, found in itertools.islice(_found(what, kinds, ""), _MOST):
            reference = self._reference(found)
            reference.name, reference.category = (str(name) + suffix)[:_NAME_LENGTH], category
            reference.number = next(self._numbers)
            self._references.add(reference)

    def _reference(self, found: Any) -> _Reference:
        """The one there is: a program may name the same tensor in every step."""
        for reference in weakref.getweakrefs(found):
            if isinstance(reference, _Reference) and reference in self._references:
                return reference
        return _Reference(found, self._references.discard)

    def tagged(self) -> list[tuple[str, str, Any]]:
        """(name, category, tensor or module) of all that live, each once. On the training's thread only."""
        alive = []
        for reference in sorted(self._references.copy(), key=_number):
            found = reference()
            if found is None:
                continue
            # A tensor that only torch's C++ still held comes back through the reference; torch must be told.
            fix = getattr(found, "_fix_weakref", None)
            if fix is not None:
                fix()
            alive.append((reference.name, reference.category, found))
        return alive


def _number(reference: _Reference) -> int:
    return reference.number


def _found(what: Any, kinds: tuple[type, ...], suffix: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(what, kinds):
        yield suffix, what
    elif depth < _DEPTH and isinstance(what, Mapping):
        for key, item in list(what.items()):
            yield from _found(item, kinds, f"{suffix}.{key}", depth + 1)
    elif depth < _DEPTH and isinstance(what, (list, tuple, set, frozenset)):
        for place, item in enumerate(list(what)):
            yield from _found(item, kinds, f"{suffix}.{place}", depth + 1)
