"""Other versions of torch for published runs: `MEMTUI_BENCH_TORCHES=2.6.0,2.1.0`, each in an environment of its own.

An environment is kept in `$XDG_CACHE_HOME/memtui/torches/VERSION` (about 2 GB). It holds the CUDA build of torch and
its small requirements, without NVIDIA's libraries, which the virtual GPU stands in for.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

_SMALL = ("typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "filelock", "numpy<2", "setuptools")
_SECONDS = 1800


def wanted() -> list[str]:
    """The versions that are asked for."""
    return [version for version in os.environ.get("MEMTUI_BENCH_TORCHES", "").split(",") if version]


def python_with(version: str, triton: bool) -> pathlib.Path | str:
    """The interpreter of the version's environment, which is made where there is none; a text says why it cannot be.

    With `triton`, that also has the Triton that this torch names.
    """
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "memtui" / "torches" / version
    python = folder / "bin" / "python"
    done = folder / "complete"
    try:
        if not done.exists():
            _run(sys.executable, "-m", "venv", "--clear", str(folder))
            _run(str(python), "-m", "pip", "install", "--quiet", "--no-deps", f"torch=={version}")
            _run(str(python), "-m", "pip", "install", "--quiet", *_SMALL)
            done.touch()
        if triton and not list(folder.glob(f"lib/python*/site-packages/triton-{_triton(folder)}.dist-info")):
            _run(str(python), "-m", "pip", "install", "--quiet", "--no-deps", f"triton=={_triton(folder)}")
    except subprocess.CalledProcessError as error:
        return " ".join((error.stderr or str(error)).split())[-160:]
    except LookupError as error:
        return str(error)
    return python


def _triton(folder: pathlib.Path) -> str:
    """The version that torch's own metadata names, in parentheses where torch is older."""
    for metadata in folder.glob("lib/python*/site-packages/torch-*.dist-info/METADATA"):
        text = metadata.read_text(encoding="utf-8")
        found = re.search(r"^Requires-Dist: triton ?\(?==([\w.]+)", text, re.MULTILINE)
        if found:
            return found.group(1)
    raise LookupError("it names no Triton")


def _run(*command: str) -> None:
    nice = ("nice", "-n", "5", *command)
    subprocess.run(nice, check=True, timeout=_SECONDS, capture_output=True, text=True)
