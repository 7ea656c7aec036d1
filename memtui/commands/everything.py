"""`memtui attach --all`: the agent into every training of this machine."""

from __future__ import annotations

import sys

from memtui.cli import CommandError
from memtui.inject.preflight import check
from memtui.sources.listing import Listed, list_processes

from .attach import check_agent
from .entry import enter, unload


def unload_all() -> int:
    """Takes the agent out of every process that has one, a line for each; 0 where none stays."""
    watched = [listed.pid for listed in list_processes() if listed.agent in {"yes", "silent"} and listed.own]
    stay = 0
    for pid in watched:
        try:
            if unload(pid):
                print(f"{pid}: the agent is out")
        except CommandError as error:
            stay += 1
            print(f"{pid}: {error}")
    if not watched:
        print("memtui: no process has an agent", file=sys.stderr)
    return 1 if stay else 0


def attach_all(*, dry: bool = False) -> int:
    """A line for each; 0 where all of them can be watched now. `dry` says what would be done, and does nothing."""
    found = [listed for listed in list_processes() if listed.part_of is None and listed.agent != "ended"]
    if not found:
        raise CommandError("nothing to attach to: no process with PyTorch loaded, or on a GPU")
    missed = 0
    for listed in found:
        trouble = "" if listed.agent in {"yes", "not yet"} else _enter(listed, dry)
        missed += bool(trouble)
        print(
            f"{listed.pid}: {trouble or ('would be watched' if dry else f'memtui attach --pid {listed.pid} shows it')}"
        )
    if missed:
        print(f"memtui: {missed} of {len(found)} cannot be watched", file=sys.stderr)
    return 1 if missed else 0


def _enter(listed: Listed, dry: bool) -> str:
    """Gets the agent in; why not, where it does not, or where another is there that this viewer cannot read."""
    try:
        if check_agent(listed.pid, supervised=False):
            return ""
    except CommandError as error:
        return str(error)
    if dry:
        refusal = check(listed.pid).refusal
        return "" if refusal is None else refusal.text
    try:
        enter(listed.pid, quiet=True)
    except CommandError as error:
        if error.status == 130:
            raise
        return str(error)
    return ""
