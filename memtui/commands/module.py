"""Whether the module that `memtui run -m` names is there, asked of the Python that is to run it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess

from memtui.cli import CommandError

#: Looks where `python -m` would, and imports none of it. A package that makes its modules as it is imported may have
#: more than is seen: of such a one nothing is said.
_PROBE = """
import json, sys

def find(name, path):
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path, None) if hasattr(finder, "find_spec") else None
        if spec is not None:
            return spec

def certain(spec):
    if spec.origin is None:
        return spec.submodule_search_locations is not None
    source = spec.loader.get_source(spec.name)
    return source is not None and not any(word in source for word in ("__path__", "sys.modules", "meta_path"))

def look(words):
    path = None
    for count in range(1, len(words) + 1):
        spec = find(".".join(words[:count]), path)
        if spec is None:
            return "missing"
        path = spec.submodule_search_locations
        if not certain(spec):
            return "unknown"
        if path is None and count < len(words):
            return "missing"
    if path is not None and find(".".join(words) + ".__main__", path) is None:
        return "package"
    return "there"

words = sys.argv[1].split(".")
found = "missing" if "" in words else "there" if sys.argv[1] in sys.modules else look(words)
print("\\n" + json.dumps({"memtui": found}))
"""
_SECONDS = 10.0


def check_module(interpreter: str, name: str) -> None:
    """Raises CommandError where `interpreter -m name` would surely find nothing to run."""
    found = _look(interpreter, name)
    if found == "missing" and os.path.isfile(name):
        raise CommandError(f"{name} is a script, not a module: memtui run {name}")
    if found == "missing" and name.endswith(".py"):
        raise CommandError(f"no module named {name}: memtui run -m takes a name without .py at its end")
    if found == "missing":
        raise CommandError(
            f"no module named {name} for {interpreter}: install it there, or go to the folder that holds it"
        )
    if found == "package":
        raise CommandError(f"{name} is a package without __main__: name one of its modules")


def _look(interpreter: str, name: str) -> str:
    """ "there", "missing", "package" (one that cannot be run), or "unknown"."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError, TypeError, KeyError, IndexError):
        done = subprocess.run(
            [interpreter, "-c", _PROBE, name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=True,
        )
        # What the environment's own start-up code prints comes before it.
        return str(json.loads(done.stdout.splitlines()[-1])["memtui"])
    return "unknown"
