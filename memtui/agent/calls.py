"""Notes which submodules are called during one step, as roots are noticed: by a dictionary that is asked."""

from __future__ import annotations

import collections
import dis
import time
import weakref
from typing import Any, Optional

from .recording import Span, Submodules
from .roots import WatchedHooks
from .submodules import submodules

_now = time.monotonic_ns


class _NotedHooks(WatchedHooks):
    """A submodule's forward pre-hooks for one step."""

    calls: Optional[list[tuple[int, int]]] = None
    place = -1
    is_root = False

    def __bool__(self) -> bool:
        if self.calls is not None:
            self.calls.append((_now(), self.place))
        if self.is_root:
            return super().__bool__()
        return len(self) > 0


class Calls:
    """Puts the noting dictionaries in place and takes every one out again. On the training's thread only."""

    def __init__(self, roots: list[Any]) -> None:
        modules = submodules(roots)
        self.submodules = Submodules(
            names=tuple(name for name, _, _ in modules),
            parents=tuple(parent for _, parent, _ in modules),
            spans=_spans([module for _, _, module in modules]),
        )
        self._placed: list[tuple[Any, Any, _NotedHooks]] = []
        for place, (_, _, module) in enumerate(modules):
            hooks = module.__dict__.get("_forward_pre_hooks")
            # As in roots: a hook's handle refers to the dictionary itself.
            if type(hooks) not in (collections.OrderedDict, WatchedHooks) or weakref.getweakrefcount(hooks):
                continue
            noted = _NotedHooks(hooks)
            noted.calls, noted.place, noted.is_root = self.submodules.calls, place, type(hooks) is WatchedHooks
            if noted.is_root:
                noted.thread = hooks.thread
            module.__dict__["_forward_pre_hooks"] = noted
            self._placed.append((weakref.ref(module), hooks, noted))

    def take_out(self) -> None:
        """Every module has the dictionary again that it had, unless the program has put a hook into ours."""
        for reference, hooks, noted in self._placed:
            noted.calls = None
            module = reference()
            if module is None or module.__dict__.get("_forward_pre_hooks") is not noted:
                continue
            if not weakref.getweakrefcount(noted) and list(noted.items()) == list(hooks.items()):
                module.__dict__["_forward_pre_hooks"] = hooks
        self._placed.clear()


def _spans(modules: list[Any]) -> tuple[Optional[Span], ...]:
    known: dict[Any, Optional[Span]] = {}
    found = []
    for module in modules:
        forward = module.__dict__.get("forward") or getattr(type(module), "forward", None)
        forward = getattr(forward, "__wrapped__", forward)
        code = getattr(forward, "__code__", None)
        if code not in known:
            known[code] = None if code is None else _span(code)
        found.append(known[code])
    return tuple(found)


def _span(code: Any) -> Span:
    last = max((line for _, line in dis.findlinestarts(code) if line is not None), default=code.co_firstlineno)
    return code.co_filename, code.co_name, code.co_firstlineno, last
