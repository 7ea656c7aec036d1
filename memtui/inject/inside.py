"""Runs in the target, in a thread of its own: loads the agent from memory and starts it.

Is read as text by `memtui.inject.payload` and imports nothing of memtui: of the target's Python it needs 3.9, and
nothing of it reaches the target's `sys.path` or file system. Every error is told to the tool, and to nobody else.
"""

from __future__ import annotations

import ctypes
import marshal
import sys
import time
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER, module_from_spec
from typing import Any, Optional

_KEY = "_memtui_agent_of_this_process"
_TURN = "_memtui_enters_this_process"
_PACKAGE = "_memtui"
#: Not in any file system; absolute, so that it is the same from wherever it is asked for.
_FOLDER = "/<memtui>"
_IMPORT_SECONDS, _LEAVE_SECONDS, _SERVE_SECONDS, _KEEP_SECONDS = 600.0, 70.0, 5.0, 2.0
_PAUSE_SECONDS = 0.002
_RUNNING, _FAILED, _SERVING = 2, 3, 4
_STATE, _MESSAGE, _MESSAGE_BYTES = 40, 48, 900


class Failure(Exception):
    """The agent is not there; the message is one line for the user."""


def file_of(name: str) -> str:
    """The file that a module seems to be of."""
    return f"{_FOLDER}/{name.replace('.', '/')}.py"


class Finder:
    """Modules that are in memory; the last of the meta path."""

    def __init__(self, archive: dict[str, Any]) -> None:
        """Of `archive` the sources by the module's name, those of packages ending in `.__init__`; compiled, if they
        were by this very Python."""
        self._sources: dict[str, str] = archive["sources"]
        self._codes: dict[str, bytes] = archive["codes"] if archive["magic"] == MAGIC_NUMBER else {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """What the import system asks for."""
        package = f"{name}.__init__" in self._sources
        if not package and name not in self._sources:
            return None
        origin = file_of(f"{name}.__init__" if package else name)
        loader: Any = self
        spec = ModuleSpec(name, loader, origin=origin, is_package=package)
        if package:
            spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module."""

    def exec_module(self, module: Any) -> None:
        """Runs a module's source."""
        name = module.__spec__.name
        if name not in self._sources:
            name += ".__init__"
        module.__file__ = module.__spec__.origin
        if name in self._codes:
            code = marshal.loads(self._codes[name])
        else:
            code = compile(self._sources[name], module.__file__, "exec", dont_inherit=True)
        exec(code, module.__dict__)

    def begin(self) -> None:
        """Loads the outermost package: the other finders would look for it through every folder of the path."""
        spec = self.find_spec(_PACKAGE)
        assert spec is not None
        package = module_from_spec(spec)
        sys.modules[_PACKAGE] = package
        self.exec_module(package)

    def forget(self) -> None:
        """Takes the modules and this finder out; what still runs of them goes on."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for name in [name for name in sys.modules if name == _PACKAGE or name.startswith(_PACKAGE + ".")]:
            sys.modules.pop(name, None)
        # What torch and Python keep of the modules for good keeps their loader too.
        self._sources.clear()
        self._codes.clear()


class Report:
    """Tells the tool how far it is, in the memory that this came in; says nothing where there is none."""

    def __init__(self, address: int) -> None:
        self._address = address

    def state(self, state: int) -> None:
        """How far it is."""
        if self._address:
            ctypes.c_uint64.from_address(self._address + _STATE).value = state

    def tell(self, state: int, text: str) -> None:
        """How far it is, with a message."""
        if self._address:
            data = text.encode(errors="replace")[:_MESSAGE_BYTES]
            ctypes.memmove(self._address + _MESSAGE + 8, data, len(data))
            ctypes.c_uint64.from_address(self._address + _MESSAGE).value = len(data)
        self.state(state)


def enter(archive: dict[str, Any], options: dict[str, Any], address: int = 0, size: int = 0) -> None:
    """Loads and starts the agent; the memory that this came in is given back."""
    report = Report(address)
    try:
        report.state(_RUNNING)
        report.tell(_SERVING, _start(archive, options))
    except Failure as error:
        report.tell(_FAILED, str(error))
    except BaseException as error:  # noqa: BLE001 - the program must not meet an error of its monitor
        report.tell(_FAILED, f"the agent could not be loaded: {type(error).__name__}: {error}")
    if address:
        time.sleep(_KEEP_SECONDS)  # until the tool has read it
        unmap = ctypes.CDLL(None).munmap
        unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        unmap(address, size)


def _start(archive: dict[str, Any], options: dict[str, Any]) -> str:
    """Where the agent listens."""
    _torch()
    # The call of a tool that was killed may be at it too: of two agents each would change the hooks under the other.
    mine = object()
    end = time.monotonic() + _LEAVE_SECONDS
    while sys.modules.setdefault(_TURN, mine) is not mine:  # type: ignore[arg-type]
        if time.monotonic() > end:
            raise Failure("another memtui is just getting in, and does not come to an end")
        time.sleep(_PAUSE_SECONDS)
    try:
        return _start_alone(archive, options)
    finally:
        del sys.modules[_TURN]


def _start_alone(archive: dict[str, Any], options: dict[str, Any]) -> str:
    sentry = _existing()
    if sentry is None:
        finder = Finder(archive)
        if _PACKAGE not in sys.modules:
            sys.meta_path.append(finder)
            finder.begin()
        try:
            from _memtui.agent import dormant, server  # type: ignore[import-not-found]

            server.more_peers.update(options.get("peers", ()))
            sentry = dormant.install_late(finder.forget)
        except BaseException:
            finder.forget()
            raise
        if sentry is None:
            finder.forget()
            raise Failure(
                "the training is never outside of backward and of its optimizer: hooks cannot be put in place"
            )
    return _served(sentry)


def _torch() -> Any:
    """PyTorch, once it is imported completely."""
    end = time.monotonic() + _IMPORT_SECONDS
    while True:
        torch = sys.modules.get("torch")
        spec = getattr(torch, "__spec__", None)
        if torch is not None and not getattr(spec, "_initializing", False):
            return torch
        if time.monotonic() > end:
            raise Failure("PyTorch's library is loaded, and the program has not imported torch")
        time.sleep(20 * _PAUSE_SECONDS)


def _existing() -> Any:
    """An agent that is there already, started if it was not; one that has ended is waited for until it is gone."""
    sentry: Any = sys.modules.get(_KEY)
    if sentry is None:
        return None
    if not getattr(sentry, "stopped", False):
        sentry.start()
        return sentry
    sentry.stop()
    end = time.monotonic() + _LEAVE_SECONDS
    while sys.modules.get(_KEY) is sentry:
        if time.monotonic() > end:
            sys.modules.pop(_KEY, None)
        time.sleep(_PAUSE_SECONDS)
    return None


def _served(sentry: Any) -> str:
    agent = sentry.agent
    # Asked again and again, it would compete with the agent for Python's lock.
    agent.heard.wait(_SERVE_SECONDS)
    path = agent.listens_at
    if path is not None:
        return str(path)
    trouble = agent.trouble
    if trouble:
        sentry.stop()
        raise Failure(trouble)
    raise Failure("the agent was loaded and does not listen")
