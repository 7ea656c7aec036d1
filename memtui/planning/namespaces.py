"""Into a user, mount and network namespace of one's own, as the same user."""

from __future__ import annotations

import os
from collections.abc import Callable

from memtui.planning import system


def enter_namespaces() -> bool:
    """Leave the outer namespaces; true where every user and group is known inside too, as it is for root.

    Users and groups keep their numbers. Without privileges only the own ones are known inside; all rights over
    the new namespaces end where another program is executed. Raises OSError.
    """
    uid, gid = os.geteuid(), os.getegid()
    finish = _map_everybody() if uid == 0 else lambda: False
    try:
        system.unshare(system.NEW_USER | system.NEW_MOUNTS | system.NEW_NETWORK)
    finally:
        everybody = finish()
    if not everybody:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
    return everybody


def _map_everybody() -> Callable[[], bool]:
    """Start a process that maps all users from outside, where root has the right to; the result lets it do so."""
    target = os.getpid()
    maps = {name: _same_numbers(f"/proc/self/{name}") for name in ("gid_map", "uid_map")}
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(go)
            os.read(ready, 1)
            for name, text in maps.items():
                _write(f"/proc/{target}/{name}", text)
            status = 0
        except OSError:
            pass  # a container's root may lack it: then only the own ids are mapped
        finally:
            os._exit(status)
    os.close(ready)

    def finish() -> bool:
        os.close(go)
        return os.waitpid(child, 0)[1] == 0

    return finish


def _same_numbers(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return "".join("{0} {0} {2}\n".format(*line.split()) for line in file)


def _write(path: str, text: str) -> None:
    # One write: the kernel takes a map whole, once.
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
