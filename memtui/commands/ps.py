"""`memtui ps`: what can be watched."""

from __future__ import annotations

import argparse
import shutil
import sys

from memtui.analysis import text, units
from memtui.sources.listing import Listed, age_ns, list_processes

_HEADS = ("pid", "user", "device", "memory", "age", "agent", "attach", "command")
_RIGHT = frozenset(("pid", "memory", "age"))


def ps(options: argparse.Namespace) -> int:
    """Prints a table; 0 also where there is nothing to list."""
    found = list_processes()
    if not found:
        print("nothing to watch: no process with a memtui agent, with PyTorch loaded, or on a GPU")
        return 0
    rows = [_HEADS, *map(_cells, found)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADS))]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    for row in rows:
        cells = [
            cell.rjust(width) if head in _RIGHT else cell.ljust(width) for cell, width, head in zip(row, widths, _HEADS)
        ]
        line = "  ".join(cells).rstrip()
        print(line if len(line) <= columns else line[: columns - 1] + "…")
    return 0


def _cells(listed: Listed) -> tuple[str, ...]:
    command = text.clean(" ".join(listed.command), 200)
    if listed.rank is not None:
        command = f"[rank {listed.rank}] {command}"
    return (
        str(listed.pid),
        text.clean(listed.user, 20),
        text.clean(listed.device, 20) or units.UNKNOWN,
        units.size(listed.memory_bytes),
        units.duration(age_ns(listed)),
        listed.agent,
        _attach(listed),
        command,
    )


def _attach(listed: Listed) -> str:
    if not listed.own:
        return f"as {text.clean(listed.user, 20)} or root"
    if listed.agent == "yes" or listed.supervised:
        return "yes"
    if listed.agent == "no":
        return "not without an agent"
    return units.UNKNOWN
