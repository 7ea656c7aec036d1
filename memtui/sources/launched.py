"""The processes below a launcher that may be its ranks: those with an agent, and those that could get one."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Collection
from typing import NamedTuple, Optional

from .environ import environment_of
from .relatives import ancestors, rank_of
from .sockets import all_sockets


class Launched(NamedTuple):
    """One process; `started` is when, in the kernel's ticks: a pid that is given out again is another process."""

    pid: int
    started: int
    rank: Optional[int]  # as its environment says
    local_rank: Optional[int]


def with_agents(root: int) -> list[Launched]:
    """Descendants of `root` with an agent, the oldest first, without those that only help a rank.

    What a rank starts inherits its environment: a data loader's worker that uses a device is no second rank of that
    number. Dormant workers have no agent at all.
    """
    agents = set(all_sockets("agent"))
    found = _descendants(root, agents - {root})
    return [each for each, above in found if not _helps(each, [pid for pid in above if pid in agents])]


def without_agents(root: int, on_devices: Collection[int]) -> list[Launched]:
    """Descendants that are ranks by their environment, or use a device by the driver's list, and have no agent.

    Those that were started to get one by themselves are left alone until they do.
    """
    agents = set(all_sockets("agent"))
    found = []
    for each, above in _descendants(root, _below(root)):
        ranked = each.rank is not None and _runs_python(each.pid)
        if each.pid in agents or not (ranked or each.pid in on_devices) or _brings_agent(each.pid):
            continue
        if not _helps(each, [pid for pid in above if _runs_python(pid)]):
            found.append(each)
    return found


def has_ranks(root: int) -> bool:
    """Whether `root` is no rank itself, and has started some."""
    if rank_of(root) is not None:
        return False
    return bool(without_agents(root, ())) or any(each.rank is not None for each in with_agents(root))


def _descendants(root: int, pids: Collection[int]) -> list[tuple[Launched, list[int]]]:
    """Those of `pids` below `root`, with what is above them up to it, the oldest first."""
    found = []
    for pid in pids:
        above = ancestors(pid)
        started = _started(pid)
        if root not in above or started is None:
            continue
        environment = environment_of(pid)
        launched = Launched(pid, started, _number(environment, "RANK"), _number(environment, "LOCAL_RANK"))
        found.append((launched, above[: above.index(root) + 1]))
    return sorted(found, key=lambda each: (each[0].started, each[0].pid))


def _helps(launched: Launched, above: list[int]) -> bool:
    """Whether one of `above` is the rank whose number it has; a shell in between may have it too, and is none."""
    return launched.rank is not None and any(_number(environment_of(pid), "RANK") == launched.rank for pid in above)


def _number(environment: dict[str, str], name: str) -> Optional[int]:
    value = environment.get(name, "")
    return int(value) if value.isdecimal() and value.isascii() else None


def _started(pid: int) -> Optional[int]:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in parentheses may contain anything.
    return int(stat.rpartition(")")[2].split()[19])


def _below(root: int) -> list[int]:
    """All descendants; some tens of microseconds for each thread of theirs."""
    found: list[int] = []
    waiting = [root]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, pathlib.Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def _runs_python(pid: int) -> bool:
    try:
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


def _brings_agent(pid: int) -> bool:
    return "/agent/bootstrap" in environment_of(pid).get("PYTHONPATH", "")
