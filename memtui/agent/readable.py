"""Whose gradients may be read just now.

Python's lock does not protect them: torch gives it up while it drops a gradient, in the middle of changing the
parameter that had it, and whoever asks that parameter for its gradient then crashes the process. So only those are
read that no other thread can be about to write: of what the thread itself trains.
"""

from __future__ import annotations

import _thread
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .identity import members
from .roots import caller

if TYPE_CHECKING:
    from .roots import Roots

_Known = tuple[object, ...]


class Readable:
    """Root modules and optimizers, by id, whose parameters may be asked for their gradients."""

    def __init__(self, roots: Iterable[int] = (), optimizers: Iterable[int] = (), *, everything: bool = False) -> None:
        self.everything, self._roots, self._optimizers = everything, frozenset(roots), frozenset(optimizers)

    @property
    def anything(self) -> bool:
        """Whether any may be read."""
        return self.everything or bool(self._roots or self._optimizers)

    def root(self, module: Any) -> bool:
        """Whether those of a root module's parameters may be read."""
        return self.everything or id(module) in self._roots

    def optimizer(self, optimizer: Any) -> bool:
        """Whether those of parameters that only an optimizer holds may be read."""
        return self.everything or id(optimizer) in self._optimizers


NOTHING = Readable()
EVERYTHING = Readable(everything=True)


class Trained:
    """What one thread trains: the optimizers that have stepped on it, and the root modules with their parameters.

    Where it runs backward passes also the modules that no other thread was seen to call with gradients: not all that
    has gradients is some optimizer's, of torch's own kind.
    """

    def __init__(self) -> None:
        self._known: _Known = ()
        self._found = NOTHING

    def among(self, roots: Roots, optimizers: list[Any]) -> Readable:
        """Of `roots` those that this very thread trains, with `optimizers`; kept until one of them has changed."""
        thread = _thread.get_ident()
        known: _Known = (
            *(thread, roots.revision, roots.callers, roots.trained),
            *((id(each), len(each.param_groups)) for each in optimizers),
        )
        if known != self._known:
            held = {
                id(each) for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]
            }
            callers = {thread} if roots.trained else set()
            trained = []
            for root in roots.modules():
                modules, parameters, _ = members([root])
                if not held.isdisjoint(map(id, parameters)) or not callers.isdisjoint(map(caller, modules)):
                    trained.append(id(root))
            self._known, self._found = known, Readable(trained, map(id, optimizers))
        return self._found
