"""`memtui ps`: what can be watched."""

from __future__ import annotations

import argparse
import shutil
import sys

from memtui.sources.listing import list_processes
from memtui.tui.processes import HEADS, RIGHT, cells, obstacle, ordered

from .ownline import writable


def ps(options: argparse.Namespace) -> int:
    """Prints a table, what can be watched first; 0 also where there is nothing to list."""
    found = ordered(list_processes())
    if not found:
        print("nothing to watch: no process with a memtui agent, with PyTorch loaded, or on a GPU")
        return 0
    rows = [HEADS, *map(cells, found)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEADS))]
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns if on_terminal else 10_000
    for row, listed in zip(rows, (None, *found)):
        line = _line(row, widths)
        if len(line) > columns and listed is not None:
            # The end of a command says more than the folder of its interpreter.
            line = _line(cells(listed, short=True), widths)
        print(writable(sys.stdout, line if len(line) <= columns else line[: columns - 1] + "…"))
    if all(map(obstacle, found)):
        print(end="", flush=True)
        print("memtui: none of these can be watched; one that memtui run starts can", file=sys.stderr)
    return 0


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    aligned = [
        cell.rjust(width) if head in RIGHT else cell.ljust(width) for cell, width, head in zip(row, widths, HEADS)
    ]
    return "  ".join(aligned).rstrip()
