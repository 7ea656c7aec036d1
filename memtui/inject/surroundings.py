"""What decides, outside of a process, whether this one may trace it."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
from dataclasses import dataclass
from typing import Optional

from . import ptrace
from .process import read_status

_CAP_SYS_PTRACE = 19
#: `sys.remote_exec` is refused where the target was started with one of these.
_NO_REMOTE = "PYTHON_DISABLE_REMOTE_DEBUG"
_NO_REMOTE_OPTION = "disable_remote_debug"


@dataclass(frozen=True)
class Surroundings:
    """This process's rights over another one."""

    uid: int
    machine: str
    may_trace: bool  # CAP_SYS_PTRACE
    yama: Optional[int]  # kernel.yama.ptrace_scope; None where there is no such module
    memory_errno: Optional[int]  # of opening the process's memory, which needs the same right as tracing it
    ptrace_errno: Optional[int]  # of the system call itself
    dumpable: bool
    remote_disabled: bool  # the process refuses Python's own remote debugging
    debugger: Optional[str]  # gdb


def read_surroundings(pid: int) -> Surroundings:
    """Looks, and touches nothing."""
    own = read_status("/proc/self") or {}
    return Surroundings(
        uid=os.geteuid(),
        machine=os.uname().machine,
        may_trace=bool(int(own.get("CapEff", "0"), 16) >> _CAP_SYS_PTRACE & 1),
        yama=_yama(),
        memory_errno=_memory_errno(pid),
        ptrace_errno=ptrace.refused(),
        dumpable=_dumpable(pid),
        remote_disabled=_remote_disabled(pid),
        debugger=shutil.which("gdb"),
    )


def _yama() -> Optional[int]:
    try:
        return int(pathlib.Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return None


def _memory_errno(pid: int) -> Optional[int]:
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or errno.EPERM
    return None


def _dumpable(pid: int) -> bool:
    status = read_status(f"/proc/{pid}")
    # Files of a process that may not be dumped belong to root.
    try:
        owner = os.stat(f"/proc/{pid}/environ").st_uid
    except OSError:
        return True
    return status is None or owner != 0 or int(status.get("Uid", "0 0").split()[1]) == 0


def _remote_disabled(pid: int) -> bool:
    with contextlib.suppress(OSError):
        environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if any(entry.startswith(f"{_NO_REMOTE}=".encode()) and not entry.endswith(b"=") for entry in environment):
            return True
        return _NO_REMOTE_OPTION.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
