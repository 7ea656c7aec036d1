"""What a plan takes, and whether its search for the largest batch finds what really running every one does."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil

from memtui.virtual_gpu import environment, profile_for

from . import surroundings
from .report import Line, at_most

_PROGRAM = str(surroundings.PROGRAMS / "planned.py")
_GIB = 1 << 30
#: A model of seven billion parameters.
_LARGE = ("--layers", "32", "--width", "4096", "--heads", "32", "--vocabulary", "32000", "--batch-size", "1")
_BATCHES = range(1, 25)


def bench() -> Iterator[Line]:
    """Seconds, host memory, and the search against the truth."""
    with surroundings.runtime_folder() as runtime:
        answer, seconds, held = _plan(runtime, "--gpu", "a100-40g", "--steps", "5", _PROGRAM)
        yield at_most("GPT of 124 million parameters, 5 steps", seconds, 30, "s", 1, f" ({answer['steps']} steps)")
        yield at_most("its host memory, both runs together", held / _GIB, 2, "GiB", 2)
        answer, seconds, held = _plan(runtime, "--gpu", "200GiB", "--steps", "5", _PROGRAM, *_LARGE)
        yield at_most("GPT of 6.6 billion, host memory", held / _GIB, 4, "GiB", 2, f" ({seconds:.0f} s)")
        words = ("--gpu", "4090", "--fit", f"batch-size={_BATCHES[0]}..{_BATCHES[-1]}", "--steps", "4", _PROGRAM)
        found, seconds, _ = _plan(runtime, *words)
        truth = max((batch for batch in _BATCHES if _runs(batch)), default=None)
        same = found["largest"] == truth
        yield Line(
            "largest batch on a 4090", f"{found['largest']} ({seconds:.0f} s)", f"{truth}, each really run", same
        )
        yield at_most("runs of the search", len(found["runs"]), 10, "runs", 0)


def _plan(runtime: pathlib.Path, *words: str) -> tuple[Any, float, int]:
    """(the answer, seconds, the most host memory that it and all it started had at once)."""
    env = surroundings.bare() | {"MEMTUI_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(surroundings.ROOT)}
    begun = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "memtui", "plan", "--json", *words], env=env, stdout=subprocess.PIPE
    ) as process:
        most = [0]
        threading.Thread(target=_watch, args=(process, most), daemon=True).start()
        assert process.stdout is not None
        printed = process.stdout.read()
    return json.loads(printed), time.monotonic() - begun, most[0]


def _watch(process: subprocess.Popen[bytes], most: list[int]) -> None:
    """Memory of every process of this environment: programs are not children of the plan."""
    marks = {f"MEMTUI_RUNTIME_DIR={_of(process.pid)}".encode()}
    while process.poll() is None:
        held = 0
        for each in psutil.process_iter():
            try:
                environ = pathlib.Path(f"/proc/{each.pid}/environ").read_bytes().split(b"\0")
                if not marks.isdisjoint(environ):
                    held += each.memory_full_info().pss
            except (OSError, psutil.Error):
                continue
        most[0] = max(most[0], held)
        time.sleep(0.2)


def _of(pid: int) -> str:
    entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(entry.partition(b"=")[2].decode() for entry in entries if entry.startswith(b"MEMTUI_RUNTIME_DIR="))


def _runs(batch: int) -> bool:
    """Whether the program itself comes through on such a card."""
    env = environment(profile_for("4090"), base=surroundings.bare() | {"PYTHONPATH": str(surroundings.ROOT)})
    command = [sys.executable, _PROGRAM, "--batch-size", str(batch), "--steps", "4"]
    return not subprocess.run(command, env=env, capture_output=True, check=False).returncode
