# mypy: ignore-errors
# Runs in any Python 3, before anything else, perhaps beside another sitecustomize: no annotations, no imports.
"""Found first on PYTHONPATH by programs that `memtui run` starts: waits for torch, and is otherwise not there.

Must cost next to nothing in processes that never import torch, and must never raise.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class _Loader:
    """Stands in for torch's loader until its module is executed, to be told when that is done."""

    def __init__(self, inner, package):
        self._inner, self._package = inner, package

    def create_module(self, spec):
        return self._inner.create_module(spec)

    def exec_module(self, module):
        # From here on nothing in the module tells that somebody stood between.
        module.__spec__.loader = module.__loader__ = self._inner
        self._inner.exec_module(module)
        _wake(self._package)


class _Finder:
    """A meta path entry that leaves at the first import of torch."""

    def __init__(self, package):
        self._package = package

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._package)
                return spec
        return None


def _wake(package):
    # The agent is reached through a package of another name whose path is given: the environment of the program
    # need not have memtui installed, and gets nothing else of the viewer's.
    try:
        import types

        holder = types.ModuleType("_memtui")
        holder.__path__ = [package]
        sys.modules.setdefault("_memtui", holder)
        from _memtui.agent import dormant

        dormant.install(imported=True)
    except Exception as error:  # noqa: BLE001 - the program's start must not depend on the monitor
        if os.environ.get("MEMTUI_DEBUG"):
            sys.stderr.write("memtui: the agent could not be loaded: %r\n" % (error,))  # noqa: UP031


def _chain():
    """Gives way to a sitecustomize that was there before, as if this one were not."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", None) != "sitecustomize":
            raise
    finally:
        if own is not None:
            sys.modules.setdefault("sitecustomize", own)


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, _Finder(os.path.dirname(os.path.dirname(_HERE))))
    _chain()
