"""What there is to watch of this user: processes with an agent, ranks of launchers, and others with PyTorch loaded."""

from __future__ import annotations

import os
import pathlib
import socket
from collections.abc import Collection
from typing import Any, Optional

from memtui.inject.reach import find_agent_of
from memtui.wire import paths

from .environ import environment_of
from .launched import with_agents, without_agents
from .relatives import ancestors
from .sockets import all_sockets, find_socket

_LOCAL = ("", "localhost", "127.0.0.1", "::1")
Found = dict[str, Any]


def found_below(root: int, *, search: bool, on_devices: Collection[int]) -> list[Found]:
    """Process `root`, else the ranks that it has started, the oldest first; with `search` those without an agent too.

    A launcher stands for its ranks.
    """
    ranks = list(with_agents(root))
    if search:
        ranks += without_agents(root, on_devices)
    environment = environment_of(root)
    if "RANK" not in environment and any(each.rank is not None for each in ranks):
        return [found for found in map(_described, (each.pid for each in ranks)) if found is not None]
    own = _described(root)
    return [] if own is None else [own]


def found_here() -> list[Found]:
    """Every process of this user with an agent, and what else of theirs is a rank by its environment."""
    found = []
    for pid in sorted(_agents() | _ranks()):
        described = _described(pid)
        if described is None or _helps(pid, described["rank"]):
            continue
        found.append(described)
    return found


def trainings() -> list[Found]:
    """Processes of this user with PyTorch loaded that have no agent."""
    found = [_described(pid) for pid in _pythons() if _has_torch(pid)]
    return [each for each in found if each is not None and not each["agent"] and not _is_worker(each)]


def has_agent(pid: int) -> bool:
    """Whether a process's agent has a socket."""
    return find_socket("agent", pid) is not None


def _agents() -> set[int]:
    """Those of living processes; a socket may have been left behind."""
    listed = {pid for pid in all_sockets("agent") if _listens(pid) and _own(pid)}
    apart = (pid for pid in _pythons() if pid not in listed and _listens_apart(pid))
    return listed | {pid for pid in apart if find_agent_of(pid) is not None}


def _listens_apart(pid: int) -> bool:
    """Whether a process's agent would have its socket elsewhere; next to nothing where it would not."""
    try:
        if os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
            return True
    except OSError:
        return False
    environment = environment_of(pid)
    own, session = environment.get("MEMTUI_RUNTIME_DIR", ""), environment.get("XDG_RUNTIME_DIR", "")
    folder = own or (f"{session}/memtui" if session else "")
    return bool(folder) and pathlib.Path(folder) not in paths.runtime_folders()


def _listens(pid: int) -> bool:
    found = find_socket("agent", pid)
    if found is None:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(0.2)
        try:
            connection.connect(os.fspath(found.path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


def _ranks() -> set[int]:
    return {pid for pid in _pythons() if environment_of(pid).get("RANK", "").isdecimal() and _has_torch(pid)}


def _helps(pid: int, rank: Optional[int]) -> bool:
    """Whether it was started by the rank whose number it has, as a data loader's worker is."""
    if rank is None:
        return False
    return any(environment_of(above).get("RANK", "") == str(rank) and _is_python(above) for above in ancestors(pid))


def _is_worker(found: Found) -> bool:
    return any(_is_python(above) and _has_torch(above) for above in ancestors(found["pid"]))


def _described(pid: int) -> Optional[Found]:
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    environment = environment_of(pid)
    return {
        "pid": pid,
        "started": int(fields[19]),
        "rank": _number(environment, "RANK"),
        "local_rank": _number(environment, "LOCAL_RANK"),
        "agent": has_agent(pid),
        "command": " ".join(word.decode(errors="replace") for word in words)[:400],
        "job": _job(environment, int(fields[1])),
    }


def _job(environment: dict[str, str], parent: int) -> list[str]:
    """What ranks of one training have in common: a launcher, a meeting place. Nothing of a process by itself."""
    if _number(environment, "RANK") is None:
        return []
    common = [f"here launcher {parent}"]
    address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if port:
        where = "here" if address in _LOCAL else "at"
        common.append(f"{where} {address}:{port}")
    name = environment.get("TORCHELASTIC_RUN_ID", "none")
    return [*common, f"at run {name}"] if name != "none" else common


def _number(environment: dict[str, str], name: str) -> Optional[int]:
    value = environment.get(name, "")
    return int(value) if value.isdecimal() and value.isascii() and len(value) < 10 else None


def _own(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def _pythons() -> list[int]:
    own = os.getpid()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != own and _own(pid) and _is_python(pid)]


def _is_python(pid: int) -> bool:
    try:
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


def _has_torch(pid: int) -> bool:
    try:
        return "/libtorch" in pathlib.Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return False
