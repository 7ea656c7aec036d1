"""The host's memory while a program is tried out: what there is, what it takes, and when it is to be ended."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Optional

from memtui.sources.cgroup import memory_limit

#: For tests: the machine is taken to have so many bytes available.
AVAILABLE = "MEMTUI_PLAN_HOST_BYTES"
#: What is left to everybody else: a share of what was available at first, and no more than this.
_SPARED_SHARE, _MOST_SPARED_BYTES = 8, 2 << 30
#: Of what is available, parameters on the host may keep this share, in all processes of a run together.
_KEPT_SHARE = 16


class HostMemory:
    """What the machine had for programs when a plan began, in bytes; None where the system does not say."""

    def __init__(self) -> None:
        told = os.environ.get(AVAILABLE, "")
        self._pretended = told.isdigit()
        self.available_bytes = int(told) if self._pretended else _available()

    def kept_bytes(self, processes: int) -> Optional[int]:
        """How many bytes of parameters each of a run's processes may keep on the host with their values."""
        return None if self.available_bytes is None else self.available_bytes // _KEPT_SHARE // processes

    def taken_too_much(self, root: int, *, first_to_go: bool = False) -> Optional[int]:
        """What the processes below `root` have taken, in bytes, where that leaves too little; else None.

        Of two runs beside each other, one is the first to go.
        """
        if self.available_bytes is None:
            return None
        spared = min(self.available_bytes // _SPARED_SHARE, _MOST_SPARED_BYTES) * (2 if first_to_go else 1)
        room = None if self._pretended else _available()
        if room is not None and room >= spared:
            return None
        taken = taken_below(root)
        # Where others have taken it all, it would not help.
        return taken if taken > (self.available_bytes - spared if self._pretended else spared) else None


def _available() -> Optional[int]:
    """The machine's MemAvailable, or what is left under this process's control groups where that is less."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        total, available = kib["MemTotal"] << 10, kib["MemAvailable"] << 10
    except (OSError, ValueError, IndexError, KeyError):
        return None
    limit = memory_limit(os.getpid(), total)
    return available if limit is None else min(available, max(0, limit.room_bytes))


def taken_below(root: int) -> int:
    """Resident bytes of a process and its descendants, without the pages of files and what is shared."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name in parentheses may contain anything.
                parent = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(name))
    waiting, taken = [root], 0
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        with contextlib.suppress(OSError, ValueError, IndexError):
            resident, shared = Path("/proc", str(pid), "statm").read_text(encoding="ascii").split()[1:3]
            taken += (int(resident) - int(shared)) * os.sysconf("SC_PAGESIZE")
    return taken
