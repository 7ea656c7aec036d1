"""Which process to watch of those that a command started."""

from __future__ import annotations

import pathlib
from typing import Optional

from .environ import environment_of
from .sockets import all_sockets


def choose_agent(root: int) -> Optional[int]:
    """The process with an agent to watch: a descendant of `root` that is a rank, the lowest; else `root` itself, else
    its oldest descendant with an agent.

    A launcher may import torch too, and then has an agent that never sees a training: so ranks come first. None where
    neither it nor a descendant has an agent (yet).
    """
    agents = set(all_sockets("agent"))
    candidates = [pid for pid in agents if pid == root or root in ancestors(pid)]
    if not candidates:
        return None
    ranks = {pid: rank for pid in candidates for rank in [rank_of(pid)] if rank is not None}
    if ranks:
        return min(ranks, key=lambda pid: (ranks[pid], _created(pid)))
    return root if root in agents else min(candidates, key=_created)


def other_agents(root: int, known: int) -> list[int]:
    """Descendants of `root` with an agent, the oldest first, without the process that is `known`."""
    agents = set(all_sockets("agent")) - {root, known}
    return sorted((pid for pid in agents if root in ancestors(pid)), key=_created)


def ancestors(pid: int) -> list[int]:
    """The parents of a process, nearest first; empty where it is gone."""
    found: list[int] = []
    parent = _parent(pid)
    while parent and parent not in found:
        found.append(parent)
        parent = _parent(parent)
    return found


def rank_of(pid: int) -> Optional[int]:
    """The distributed rank that a launcher gave to a process in its environment; None where there is none."""
    value = environment_of(pid).get("RANK", "")
    return int(value) if value.isdecimal() and value.isascii() else None


def _parent(pid: int) -> int:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    # The name in parentheses may contain anything.
    return int(stat.rpartition(")")[2].split()[1])


def _created(pid: int) -> float:
    """When it was started, in the kernel's ticks; a process that is gone came last."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return float("inf")
    return float(stat.rpartition(")")[2].split()[19])
