"""What is carried into the target: the agent's and the wire's sources, and the text that loads them."""

from __future__ import annotations

import base64
import functools
import importlib.util
import marshal
import pathlib
import zlib
from collections.abc import Iterable
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

from .inside import file_of
from .maps import PAGE
from .stub import FAILED, Parcel

#: Sources by the module's name, those of packages ending in `.__init__`, where this itself was carried to another
#: machine and there are no files.
carried: dict[str, str] = {}

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_PREFIX = "_memtui"
_PACKAGES = ("agent", "wire")
_CARRIED = tuple(f"memtui.{package}." for package in _PACKAGES)

#: Run by Python itself on the main thread: nothing but the start of a thread. An error of that is swallowed; what a
#: signal handler of the program raises meanwhile is the program's.
_STARTER = """try:
    import _thread, builtins
    _thread.start_new_thread(builtins.exec, ({boot!r}, {{"__name__": "_memtui_boot", "__builtins__": builtins}}))
except RuntimeError as error:
    if error.__traceback__.tb_next is not None:
        raise
"""
#: The same where it runs in the program's own `__main__`, in which no name may be left or trusted.
_OWN_STARTER = (
    "try: __import__('_thread').start_new_thread(__import__('builtins').exec, "
    "({boot!r}, {{'__name__': '_memtui_boot', '__builtins__': __import__('builtins')}}))\n"
    "except RuntimeError: pass\n"  # no thread can be started; the tool sees that no agent comes
)
_MOST_BYTES = 900
#: What goes wrong before `enter`, which tells of its own errors, is told in the parcel too: without ctypes, which may
#: be what this Python lacks.
_BOOT = """try:
    import ctypes, marshal, os, zlib
    if not {pid} or os.getpid() == {pid}:
        archive = marshal.loads(zlib.decompress({archive}))
        scope = {{"__name__": "_memtui_inside"}}
        exec(compile(archive["inside"], "/<memtui>/inside.py", "exec", dont_inherit=True), scope)
        scope["enter"](archive, {options!r}, {address}, {size})
except Exception as error:  # the program must not meet it
    if {address}:
        text = ("the agent could not be loaded: %s: %s" % (type(error).__name__, error)).encode()[:{most}]
        with open("/proc/self/mem", "r+b", 0) as memory:
            memory.seek({address} + {message})
            memory.write(len(text).to_bytes(8, "little") + text)
            memory.seek({address} + {state})
            memory.write(({failed}).to_bytes(8, "little"))
"""


class Payload:
    """For one process, which sees its own pid as `inner_pid`. `peers` are further users that its agent lets in."""

    def __init__(self, inner_pid: int, peers: Iterable[int] = ()) -> None:
        self.archive = _archive()
        self._inner_pid = inner_pid
        self._options: dict[str, Any] = {"peers": sorted(peers)}
        #: How much memory a parcel with it takes: whole pages.
        self.parcel_bytes = _pages(Parcel.TEXT_OFFSET + len(self._text(0, 0)) + 1 + len(self.archive))

    def contents(self, address: int) -> bytes:
        """What stands at the text's place in a parcel at `address`: the text, its end, the archive."""
        text = self._text(address, self.parcel_bytes)
        return text + b"\0" + self.archive

    def _text(self, address: int, size: int) -> bytes:
        # Where the archive begins depends on the length of the text that says so. Numbers have one length each.
        end = 0
        while True:
            archive = f"ctypes.string_at({address + Parcel.TEXT_OFFSET + end + 1:#020x}, {len(self.archive)})"
            text = _STARTER.format(boot=self._boot(archive, f"{address:#020x}", f"{size:#010x}")).encode()
            if len(text) == end:
                return text
            end = len(text)

    def whole_text(self) -> bytes:
        """A text that has everything in it, to be run in the program's `__main__`."""
        archive = f"__import__('base64').b64decode({base64.b64encode(self.archive).decode()!r})"
        return _OWN_STARTER.format(boot=self._boot(archive, "0", "0")).encode()

    def _boot(self, archive: str, address: str, size: str) -> str:
        return _BOOT.format(
            pid=self._inner_pid,
            archive=archive,
            options=self._options,
            address=address,
            size=size,
            most=_MOST_BYTES,
            message=Parcel.MESSAGE_OFFSET,
            state=Parcel.STATE_OFFSET,
            failed=FAILED,
        )


def _pages(size: int) -> int:
    return (size + PAGE - 1) // PAGE * PAGE


@functools.lru_cache(maxsize=1)
def _archive() -> bytes:
    """What `memtui.inject.inside.enter` is given.

    Compiled, for a target that runs this very Python: compiling there would keep its other threads waiting.
    """
    if carried:
        sources = {
            name.replace("memtui", _PREFIX, 1): text for name, text in carried.items() if name.startswith(_CARRIED)
        }
        codes = {
            name: marshal.dumps(compile(text, file_of(name), "exec", dont_inherit=True))
            for name, text in sources.items()
        }
        inside = carried["memtui.inject.inside"]
    else:
        files = _files()
        sources = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
        codes = {name: marshal.dumps(_code(name, file)) for name, file in files.items()}
        inside = (_ROOT / "inject" / "inside.py").read_text(encoding="utf-8")
    sources[f"{_PREFIX}.__init__"] = ""
    held = {"inside": inside, "sources": sources, "magic": importlib.util.MAGIC_NUMBER, "codes": codes}
    # A format that every Python reads.
    return zlib.compress(marshal.dumps(held, 2), 1)


def _code(name: str, file: pathlib.Path) -> CodeType:
    """What Python itself keeps compiled of this file, with the name that it has in the target."""
    loader = SourceFileLoader(name.replace(_PREFIX, "memtui", 1), str(file))
    code = loader.get_code(loader.name)
    assert code is not None  # as of every file of source
    return _renamed(code, file_of(name))


def _renamed(code: CodeType, file: str) -> CodeType:
    constants = tuple(_renamed(each, file) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=file, co_consts=constants)


def _files() -> dict[str, pathlib.Path]:
    """By the name that each module has in the target; those of packages end in `.__init__`."""
    folders = ((package, _ROOT / package) for package in _PACKAGES)
    return {f"{_PREFIX}.{package}.{file.stem}": file for package, at in folders for file in sorted(at.glob("*.py"))}
