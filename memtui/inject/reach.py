"""Where the agent of a process listens, as this process reaches it: perhaps in another mount namespace."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
from collections.abc import Iterator
from typing import Optional

from memtui.wire import paths

from .process import Facts, read_facts

#: What a system call shows of users that its process's namespace does not know.
_NOBODY = 65534


def find_agent_of(pid: int) -> Optional[pathlib.Path]:
    """The socket of a process's agent; None where there is none, or it cannot be looked for."""
    facts = read_facts(pid)
    return None if facts is None else find_socket_of(facts)


def find_socket_of(facts: Facts) -> Optional[pathlib.Path]:
    """The same for what is known of the process."""
    name = paths.agent_socket_name(facts.inner_pid)
    for folder in _folders(facts):
        path = reached(facts, folder / name)
        if is_socket_of(facts, path):
            return path
    return None


def is_socket_of(facts: Facts, path: pathlib.Path) -> bool:
    """Whether a path is a socket of the process's own user: nobody else is to be listening there."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISSOCK(info.st_mode) and info.st_uid == facts.uid


def reached(facts: Facts, path: pathlib.Path) -> pathlib.Path:
    """A path of the process's own file system, from here."""
    if not is_elsewhere(facts):
        return path
    return pathlib.Path(f"/proc/{facts.pid}/root") / path.relative_to("/")


def is_elsewhere(facts: Facts) -> bool:
    """Whether a path means another file to the process than here: in another mount namespace, or under chroot."""
    if not facts.nested_files:
        with contextlib.suppress(OSError):
            return not os.path.samefile(f"/proc/{facts.pid}/root", "/")
    return True


def inner_uid(facts: Facts, uid: int) -> int:
    """A user of this namespace as the process sees it."""
    with contextlib.suppress(OSError, ValueError):
        for line in pathlib.Path(f"/proc/{facts.pid}/uid_map").read_text().splitlines():
            inner, outer, count = map(int, line.split())
            if outer <= uid < outer + count:
                return inner + uid - outer
    return _NOBODY


def _folders(facts: Facts) -> Iterator[pathlib.Path]:
    """Where the process makes its socket, by its environment as it was when it was started."""
    environment: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for entry in pathlib.Path(f"/proc/{facts.pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            environment[os.fsdecode(name)] = os.fsdecode(value)
    uid = inner_uid(facts, facts.uid)
    own = environment.get("MEMTUI_RUNTIME_DIR", "")
    session = environment.get("XDG_RUNTIME_DIR", "")
    for folder in (own, session and f"{session}/memtui", f"/run/user/{uid}/memtui", f"/tmp/memtui-{uid}"):
        if folder.startswith("/"):
            yield pathlib.Path(os.path.normpath(folder))
