"""Sockets that killed processes have left behind: removed where it is certain that nobody will listen on them again."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import stat
from typing import Optional

from memtui.wire import paths

#: Of the first pid namespace, from which every process of the machine is seen.
_FIRST_NAMESPACE = "pid:[4026531836]"
#: File systems that no other machine has: a socket of another one's refuses here, too.
_LOCAL = frozenset(("tmpfs", "ext2", "ext3", "ext4", "xfs", "f2fs", "zfs", "overlay"))


def remove_stale() -> int:
    """Removes this user's own sockets whose processes are gone; how many that were.

    Where processes of other pid namespaces cannot be seen, none: in a folder that is shared, one may be of such a one.
    """
    if not _sees_all():
        return 0
    left = [
        (pid, path)
        for prefix in ("agent", "run")
        for pid, path in paths.find_sockets(prefix).items()
        if _is_gone(pid) and _is_local(path.parent)
    ]
    removed = 0
    inner = _inner_pids() if left else frozenset()
    for pid, path in left:
        if pid in inner:
            continue
        with contextlib.suppress(OSError):
            removed += _remove(pid, path)
    return removed


def _remove(pid: int, path: pathlib.Path) -> bool:
    file = _file(path)
    # The pid may have come again meanwhile, and with it a socket of this name.
    if file is None or not _refuses(path) or not _is_gone(pid) or _file(path) != file:
        return False
    path.unlink()
    return True


def _file(path: pathlib.Path) -> Optional[tuple[int, int]]:
    """Which file it is, of a socket of this user's own."""
    info = os.lstat(path)
    return (info.st_dev, info.st_ino) if stat.S_ISSOCK(info.st_mode) and info.st_uid == os.geteuid() else None


def _refuses(path: pathlib.Path) -> bool:
    """Whether nobody listens; somebody who has no time for more connections does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            connection.connect(os.fspath(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _sees_all() -> bool:
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE
    except OSError:
        return False


def _is_local(folder: pathlib.Path) -> bool:
    try:
        device = os.stat(folder).st_dev
        mounts = pathlib.Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return False
    wanted = f"{os.major(device)}:{os.minor(device)}"
    kinds = {line.partition(" - ")[2].partition(" ")[0] for line in mounts if line.split()[2:3] == [wanted]}
    return bool(kinds) and kinds <= _LOCAL


def _inner_pids() -> frozenset[int]:
    """How processes of other pid namespaces call themselves, which is what their sockets are called by."""
    found: set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):
            for line in pathlib.Path(f"/proc/{name}/status").read_text(errors="replace").splitlines():
                if line.startswith("NSpid:"):
                    found.update(map(int, line.split()[2:]))
    return frozenset(found)
