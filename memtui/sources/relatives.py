"""Which process to watch of those that a command started."""

from __future__ import annotations

import contextlib
import pathlib
from typing import Optional

import psutil

from memtui.wire import paths


def choose_agent(root: int) -> Optional[int]:
    """The process with an agent to watch: `root` itself, else its descendant of rank 0, else the oldest one.

    None where neither it nor a descendant has an agent (yet).
    """
    agents = set(paths.find_sockets("agent"))
    if root in agents:
        return root
    candidates = sorted(pid for pid in agents if root in ancestors(pid))
    if not candidates:
        return None
    return min(candidates, key=lambda pid: (rank_of(pid) not in (None, 0), rank_of(pid) is None, _created(pid)))


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
    with contextlib.suppress(OSError):
        for entry in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == b"RANK" and value.isdigit():
                return int(value)
    return None


def _parent(pid: int) -> int:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    # The name in parentheses may contain anything.
    return int(stat.rpartition(")")[2].split()[1])


def _created(pid: int) -> float:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return float("inf")
