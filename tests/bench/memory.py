"""What the agent takes in the training's process: processes with it and without it, side by side."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from . import surroundings
from .report import Line, at_most

PAIRS, SECONDS = 4, 30
_MIB = 1 << 20


def bench() -> Iterator[Line]:
    """Anonymous memory after a while and with a full history, and what was imported."""
    pairs = [_pair() for _ in range(PAIRS)]
    for name, key in ((f"memory after {SECONDS} s", "after"), ("memory with a full history", "full")):
        added = [(observed[key] - without[key]) / _MIB for without, observed in pairs]
        note = f" ({min(added):.2f} to {max(added):.2f}, {PAIRS} pairs)"
        yield at_most(name, statistics.median(added), 4, "MiB", 2, note)
    without, observed = pairs[-1]
    new = sorted(set(observed["modules"]) - set(without["modules"]) - _standard_library())
    yield Line("third-party imports that are new", ", ".join(new) or "none", "none", not new)


def _standard_library() -> set[str]:
    names = getattr(sys, "stdlib_module_names", frozenset())  # from Python 3.10 on
    return {*names, "_memtui", "_memtui_agent_of_this_process", "sitecustomize"}


def _pair() -> tuple[dict[str, Any], dict[str, Any]]:
    """At the same time: what else the machine does meets both."""
    command = [sys.executable, str(surroundings.PROGRAMS / "memory.py"), str(SECONDS)]
    with surroundings.runtime_folder() as runtime:
        children = [
            subprocess.Popen(command, env=surroundings.with_virtual_gpu(runtime, agent=agent), stdout=subprocess.PIPE)
            for agent in (False, True)
        ]
        without, observed = (json.loads(child.communicate()[0]) for child in children)
    return without, observed
