"""Finding sockets by process: this user's, and for root everybody's."""

from __future__ import annotations

import os
import pathlib
from typing import NamedTuple, Optional

from memtui.wire import paths


class Found(NamedTuple):
    """A socket, and the user whose folder it is in: nobody else is to be listening on it."""

    path: pathlib.Path
    owner: int


def all_sockets(prefix: str) -> dict[int, Found]:
    """Sockets named `PREFIX-PID.sock` that this user may use, by pid."""
    found = {pid: Found(path, os.geteuid()) for pid, path in paths.find_sockets(prefix).items()}
    if os.geteuid() != 0:
        return found
    for uid in _other_users():
        for pid, path in paths.find_sockets(prefix, uid).items():
            if _owner(pid) in (None, uid):
                found.setdefault(pid, Found(path, uid))
    return found


def find_socket(prefix: str, pid: int) -> Optional[Found]:
    """The socket of process `pid`, which may have ended; None where there is none."""
    return all_sockets(prefix).get(pid)


def _other_users() -> list[int]:
    names = [folder.parent.name for folder in pathlib.Path("/run/user").glob("*/memtui")]
    names += [folder.name.partition("-")[2] for folder in pathlib.Path("/tmp").glob("memtui-*")]
    return sorted({int(name) for name in names if name.isdigit()} - {0})


def _owner(pid: int) -> Optional[int]:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
