"""Finds root modules as they are built, and sees them called, without a hook that a traceback or a pickle would show.

`nn.Module.__call__` asks each module's `_forward_pre_hooks` whether it is empty. In a root that dictionary is one
that notes being asked, and answers as before: no frame is added to the program's stack, nothing is called around
its forward, and a copy or a pickle of the module holds an ordinary dictionary.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable
from typing import Any

from .naps import Nap
from .untraced import compiles

#: So far down, and so many modules at once, are children watched in the place of roots that are not called themselves.
_LEVELS, _WIDEST = 3, 64

#: In the place of a thread.
SEVERAL = -1

_Noted = Callable[["WatchedHooks"], None]


class WatchedHooks(collections.OrderedDict):  # type: ignore[type-arg]
    """A module's forward pre-hooks that tell when the module is called."""

    noted: _Noted | None = None
    nap = Nap()
    #: Of a forward with gradients nobody wants to know during a nap.
    with_gradients: Callable[[], bool] = bool
    #: The one that calls the module with gradients, or SEVERAL; 0 before one was seen to.
    thread = 0

    def __bool__(self) -> bool:
        watched = WatchedHooks
        noted = watched.noted
        if noted is not None and not (watched.nap.asleep and watched.with_gradients()):
            noted(self)
        return len(self) > 0

    def __reduce__(self) -> Any:
        return (collections.OrderedDict, (), None, None, iter(list(self.items())))

    def __repr__(self) -> str:
        return repr(collections.OrderedDict(self))


def caller(module: Any) -> int:
    """The thread that calls a module with gradients, SEVERAL, or 0 where that is not known."""
    hooks = module.__dict__.get("_forward_pre_hooks")
    return hooks.thread if isinstance(hooks, WatchedHooks) else 0


class _Reference(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that knows its module's key when the module is gone."""

    __slots__ = ("key",)
    key: int


def _reference(module: Any, forget: Any) -> _Reference:
    reference = _Reference(module, forget)
    reference.key = id(module)
    return reference


class Roots:
    """Modules that have parameters or children and are nobody's child, by weak reference."""

    def __init__(self) -> None:
        self._roots: dict[int, _Reference] = {}
        self._children: dict[int, _Reference] = {}
        self._in_place: list[list[weakref.ref[Any]]] = []  # of roots, children by level
        self.revision = 0  # grows with each change, so that what was derived is known to be old
        self.trained = False  # whether backward passes were seen
        self.callers = 0  # how often another thread was seen to call a root

    def modules(self) -> list[Any]:
        """The roots that are alive."""
        return [module for module in (reference() for reference in list(self._roots.values())) if module is not None]

    def any_in_training(self) -> bool:
        """Whether a root with parameters is in training mode: metrics have none, and nobody switches them."""
        return any(module.__dict__.get("training") is True and _has_parameters(module) for module in self.modules())

    def parameter(self, module: Any) -> None:
        """A parameter is being registered on `module`."""
        key = id(module)
        if key not in self._roots and key not in self._children:
            self.add(module)

    def child(self, parent: Any, child: Any) -> None:
        """`child` is being registered as a submodule of `parent`."""
        key = id(child)
        if child is not None and key not in self._children:
            self._children[key] = _reference(child, self._forget)
            if self._roots.pop(key, None) is not None:
                _unwatch(child)
        self.parameter(parent)

    def add(self, module: Any) -> None:
        """`module` is a root from now on."""
        self._roots[id(module)] = _reference(module, self._forget)
        self.revision += 1
        _watch(module)

    def merge(self, modules: list[Any]) -> int:
        """Adds roots found in another way (copies, unpickled modules); how many were new."""
        new = [module for module in modules if id(module) not in self._roots]
        for module in new:
            self._children.pop(id(module), None)
            self.add(module)
        return len(new)

    def called(self, hooks: WatchedHooks, thread: int) -> None:
        """A module was called with gradients, and not for the first time by this very thread."""
        if hooks.thread != SEVERAL:
            hooks.thread = SEVERAL if hooks.thread else thread
            self.callers += 1

    def at_backward(self, *, forward_seen: bool) -> None:
        """A backward pass begins, and whether a root was seen to be called before it; where not, children are watched.

        One level more each time: of roots that only hold what is called, as in Lightning. Compiled ones call nothing.
        """
        self.trained = True
        if forward_seen or compiles() or len(self._in_place) >= _LEVELS:
            return
        above = [reference() for reference in self._in_place[-1]] if self._in_place else self.modules()
        tables = [module.__dict__.get("_modules") or {} for module in above if module is not None]
        below = [child for table in tables for child in list(table.values()) if child is not None]
        self._in_place.append([weakref.ref(child) for child in below[:_WIDEST]])
        for child in below[:_WIDEST]:
            _watch(child)

    def clear(self) -> None:
        """Gives every root its ordinary dictionary back."""
        below = [reference() for level in self._in_place for reference in level]
        for module in (*self.modules(), *below):
            if module is not None:
                _unwatch(module)
        self._in_place.clear()
        self._roots.clear()
        self._children.clear()

    def _forget(self, reference: Any) -> None:
        key = reference.key
        for table in (self._roots, self._children):
            if table.get(key) is reference:
                del table[key]
                self.revision += 1


def _has_parameters(module: Any) -> bool:
    waiting, seen = [module], set()  # a module may be its own grandchild
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if any(own is not None for own in list((each.__dict__.get("_parameters") or {}).values())):
            return True
        waiting += list((each.__dict__.get("_modules") or {}).values())
    return False


def _watch(module: Any) -> None:
    hooks = module.__dict__.get("_forward_pre_hooks")
    # A handle of a hook that is already there refers to the dictionary itself: it must stay the same one.
    if type(hooks) is collections.OrderedDict and not weakref.getweakrefcount(hooks):
        module.__dict__["_forward_pre_hooks"] = WatchedHooks(hooks)


def _unwatch(module: Any) -> None:
    hooks = module.__dict__.get("_forward_pre_hooks")
    if type(hooks) is WatchedHooks and not weakref.getweakrefcount(hooks):
        module.__dict__["_forward_pre_hooks"] = collections.OrderedDict(hooks)
