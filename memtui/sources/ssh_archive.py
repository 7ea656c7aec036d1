"""What is sent to another machine: sources that need nothing but Python there, and what runs them from memory."""

from __future__ import annotations

import functools
import importlib.util
import marshal
import pathlib
import zlib

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_PACKAGES = ("agent", "inject", "relay", "wire")
#: Of these packages what reads /proc and the driver by the standard library and pynvml.
_MODULES = {
    "session": ("readings",),
    "sources": (
        "agent_probe",
        "cgroup",
        "driver",
        "driver_library",
        "driver_processes",
        "environ",
        "finding",
        "launched",
        "relatives",
        "sockets",
        "virtual_driver",
    ),
}
#: Tried one after the other. What is too old says so.
_NAMES = "python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python"
_LOADER = (
    "import sys,zlib,marshal;s=sys.stdin.buffer;"
    "held=marshal.loads(zlib.decompress(s.read(int(s.readline()))));exec(held[chr(48)])"
)
#: How the line begins that says that there is no Python, with those that were found.
NO_PYTHON = b"memtui-no-python"


def command() -> str:
    """What ssh is to run: one line for any login shell, with nothing in it that comes from the user."""
    script = (
        f"for p in {_NAMES}; do "
        'if v=$($p -c "import sys;print(*sys.version_info[:2],sep=chr(46))" 2>/dev/null </dev/null); then '
        f'case $v in 3.9|3.1[0-9]) exec $p -I -S -B -c "{_LOADER}";; *) old="$old $p:$v";; esac; fi; done; '
        f'echo "{NO_PYTHON.decode()}$old"; exit 3'
    )
    assert "'" not in script
    return f"exec /bin/sh -c '{script}'"


def archive(greeting: str) -> bytes:
    """What is written to the command's standard input; the relay's first line ends in `greeting`."""
    boot = (_ROOT / "relay" / "boot.py").read_text(encoding="utf-8")
    # The loader has no quotes to name its parts with.
    held = {"0": f"{boot}\nbegin(held)\n", "sources": _sources(), "greeting": greeting}
    packed = zlib.compress(marshal.dumps(held, 2), 6)
    return b"%d\n" % len(packed) + packed


@functools.lru_cache(maxsize=1)
def _sources() -> dict[str, str]:
    """By the module's name; those of packages end in `.__init__`."""
    found = dict.fromkeys(("memtui.__init__", "memtui.session.__init__", "memtui.sources.__init__"), "")
    for package in _PACKAGES:
        for file in sorted((_ROOT / package).glob("*.py")):
            found[f"memtui.{package}.{file.stem}"] = file.read_text(encoding="utf-8")
    for package, names in _MODULES.items():
        for name in names:
            found[f"memtui.{package}.{name}"] = (_ROOT / package / f"{name}.py").read_text(encoding="utf-8")
    spec = importlib.util.find_spec("pynvml")
    if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
        found["pynvml"] = pathlib.Path(spec.origin).read_text(encoding="utf-8")
    return found
