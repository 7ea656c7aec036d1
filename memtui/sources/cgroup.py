"""The memory limit of the control groups that a process is in, versions 1 and 2, and what is left under it.

A container's limit is one: the machine's memory says nothing of what a process in it can have.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from dataclasses import dataclass
from typing import NamedTuple, Optional

#: Of `memory.stat`: pages that the kernel takes back before a limit is enforced, as in the system's MemAvailable.
_RECLAIMABLE = {
    1: ("total_active_file", "total_inactive_file"),
    2: ("active_file", "inactive_file", "slab_reclaimable"),
}
_FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}


@dataclass(frozen=True)
class MemoryLimit:
    """The lowest limit that applies, and the least that is left under any of them, in bytes."""

    limit_bytes: int
    room_bytes: int


class _Hierarchy(NamedTuple):
    version: int
    mount: str
    root: str  # the group that is seen at the mount point


def memory_limit(pid: int, physical_bytes: int, system: pathlib.Path = pathlib.Path("/")) -> Optional[MemoryLimit]:
    """The limit of process `pid`, of its group or one above; None where there is none below the machine's memory.

    `system` is the root of the file system in which /proc and the mount points are.
    """
    limits, rooms = [], []
    for hierarchy, group in _groups(pid, system):
        top = pathlib.Path(hierarchy.mount)
        # In a namespace of its own the group may be outside of what is mounted here: then the mount point is nearest.
        inside = os.path.relpath(group, hierarchy.root)
        folder = top if inside.startswith("..") else top / inside
        for each in (folder, *folder.parents):
            found = _read(system / str(each).lstrip("/"), hierarchy.version)
            if found is not None and found[0] < physical_bytes:
                limits.append(found[0])
                rooms.append(found[0] - found[1])
            if each == top:
                break
    return MemoryLimit(min(limits), min(rooms)) if limits else None


def _groups(pid: int, system: pathlib.Path) -> list[tuple[_Hierarchy, str]]:
    """Where the process's memory is counted: (hierarchy, its group there)."""
    try:
        lines = (system / f"proc/{pid}/cgroup").read_text(errors="replace").splitlines()
        mounts = (system / "proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return []
    found = []
    hierarchies = _hierarchies(mounts)
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        version = 2 if number == "0" and not controllers else 1 if "memory" in controllers.split(",") else 0
        found += [(each, group) for each in hierarchies if each.version == version]
    return found


def _hierarchies(mounts: list[str]) -> list[_Hierarchy]:
    found = []
    for line in mounts:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            found.append(_Hierarchy(2, fields[4], fields[3]))
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found.append(_Hierarchy(1, fields[4], fields[3]))
    return found


def _read(folder: pathlib.Path, version: int) -> Optional[tuple[int, int]]:
    """(limit, what is in use and cannot be taken back) of one group; None where it has no limit."""
    limit_name, usage_name = _FILES[version]
    with contextlib.suppress(OSError, ValueError):  # "max", or no memory controller here
        limit = int((folder / limit_name).read_text())
        usage = int((folder / usage_name).read_text())
        stat = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines())
        return limit, usage - sum(int(stat.get(name, 0)) for name in _RECLAIMABLE[version])
    return None
