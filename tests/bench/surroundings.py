"""The environment that benchmarked programs run in."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from memtui.agent import environment as with_agent
from memtui.virtual_gpu import VirtualGpuError, environment, profile_of

from .report import Skipped

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
#: Byte code is cached, as it is where memtui is installed.
_DROPPED = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "MEMTUI_DEBUG", "MEMTUI_DIRECT", "NO_COLOR")


def plain() -> dict[str, str]:
    """An ordinary environment in which this checkout can be imported."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TERM": "xterm-256color", "COLORTERM": "truecolor"}


def bare() -> dict[str, str]:
    """An ordinary environment that knows nothing of this checkout."""
    return {name: value for name, value in plain().items() if name != "PYTHONPATH"}


def with_virtual_gpu(runtime: pathlib.Path, *, agent: bool = True) -> dict[str, str]:
    """An environment with a virtual GPU and sockets in `runtime`; raises Skipped where there can be none."""
    if importlib.util.find_spec("torch") is None:
        raise Skipped("torch is not installed")
    try:
        made = environment(profile_of(memory="24GiB", cc="8.6"), base=plain())
    except VirtualGpuError as error:
        raise Skipped(f"no virtual GPU: {error}") from None
    made["MEMTUI_RUNTIME_DIR"] = str(runtime)
    return with_agent(made) if agent else made


@contextlib.contextmanager
def runtime_folder() -> Iterator[pathlib.Path]:
    """A folder for sockets; its path is short, as a socket's has to be."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mb-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
