"""Finding sockets by process: this user's, and for root everybody's."""

from __future__ import annotations

import os
import pathlib
import socket
import struct
from typing import NamedTuple, Optional

from memtui.inject.reach import find_agent_of
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


def listener(connection: socket.socket) -> Optional[int]:
    """The process at the other end, as this one sees its pid: 0 where it does not, None where it cannot be told.

    A socket's name has the pid that its process sees itself: in a container that shares the folder, another's here.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    size = struct.calcsize("3i")
    return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0])


def find_socket(prefix: str, pid: int) -> Optional[Found]:
    """The socket of process `pid`, which may have ended; None where there is none.

    An agent's may be in another file system, that of a container, or in a folder that only its process's environment
    names.
    """
    found = all_sockets(prefix).get(pid)
    if found is None and prefix == "agent":
        path, owner = find_agent_of(pid), _owner(pid)
        if path is not None and owner is not None:
            return Found(path, owner)
    return found


def _other_users() -> list[int]:
    names = [folder.parent.name for folder in pathlib.Path("/run/user").glob("*/memtui")]
    names += [folder.name.partition("-")[2] for folder in pathlib.Path("/tmp").glob("memtui-*")]
    return sorted({int(name) for name in names if name.isdigit()} - {0})


def _owner(pid: int) -> Optional[int]:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
