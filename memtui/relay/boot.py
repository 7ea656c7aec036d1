"""Read as text and run at the far end: what was sent is imported from memory, and no file is written.

Needs nothing of memtui to be there. Python 3.9 and newer.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from typing import Any, Optional


class Finder:
    """Modules that are in memory; the first of the meta path, so that no other memtui is met."""

    def __init__(self, sources: dict[str, str]) -> None:
        """By the module's name, those of packages ending in `.__init__`."""
        self._sources = sources

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """What the import system asks for."""
        package = f"{name}.__init__" in self._sources
        if not package and name not in self._sources:
            return None
        loader: Any = self
        spec = ModuleSpec(name, loader, origin=f"/<memtui>/{name.replace('.', '/')}.py", is_package=package)
        if package:
            spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module."""

    def exec_module(self, module: Any) -> None:
        """Runs a module's source."""
        name = module.__spec__.name
        module.__file__ = module.__spec__.origin
        text = self._sources.get(name) or self._sources.get(f"{name}.__init__", "")
        exec(compile(text, module.__file__, "exec", dont_inherit=True), module.__dict__)


def begin(held: dict[str, Any]) -> None:
    """Serves the viewer that has sent this."""
    finder: Any = Finder(held["sources"])
    sys.meta_path.insert(0, finder)
    from memtui.inject import payload
    from memtui.relay.serve import serve

    payload.carried = held["sources"]
    serve(0, held["greeting"])
