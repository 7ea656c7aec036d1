"""What /proc tells of a process that an agent is to get into."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import re
from dataclasses import dataclass
from typing import Optional

from .maps import Mapping, read_maps
from .words import printable

#: PF_KTHREAD, in the flags of `stat`: a thread of the kernel's own, which has no memory either.
_KERNEL_THREAD = 0x00200000
_VERSION = re.compile(r"(?:^|/)(?:lib)?python(3)\.(\d+)(t?)(?:\.so[.\d]*|/|$| )")


@dataclass(frozen=True)
class Facts:
    """A process at one instant; what cannot be read is None."""

    pid: int
    state: str  # as /proc has it: "R", "S", "D", "T", "t", "Z", "X"
    leader: int  # the process whose thread `pid` is; its own pid where it is a process
    tracer: int  # 0 where nobody traces any of its threads
    tracer_name: str
    parent: int
    uid: int
    inner_pid: int  # as the process itself sees its pid
    nested_user: bool  # in another user namespace than this process
    nested_files: bool  # in another mount namespace
    nested_pids: bool
    executable: Optional[str] = None
    python: Optional[tuple[int, int]] = None
    shared_python: bool = False  # in libpython, and not in the executable itself
    torch: Optional[bool] = None  # whether its library is mapped
    mappings: tuple[Mapping, ...] = ()
    #: Why its mappings cannot be read.
    denied: Optional[int] = None
    of_the_kernel: bool = False
    #: It has given its memory back, and is on its way to being a zombie.
    ending: bool = False

    @property
    def user(self) -> str:
        """The owner's name, or number."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)


def read_facts(pid: int) -> Optional[Facts]:
    """None where there is no such process."""
    status = read_status(f"/proc/{pid}")
    if status is None:
        return None
    tracer = _tracer(pid, status)
    executable: Optional[str] = None
    mappings: list[Mapping] = []
    denied = None
    try:
        executable = os.readlink(f"/proc/{pid}/exe")
        mappings = read_maps(pid)
    except OSError as error:
        denied = error.errno
    # Read after the rest: what could not be read of a process that was ending is not taken for a want of rights.
    last = read_status(f"/proc/{pid}")
    if last is None:
        return None
    of_the_kernel = _of_the_kernel(pid)
    files = {mapping.path for mapping in mappings if mapping.path}
    libraries = [path for path in files if path.rpartition("/")[2].startswith("libpython3.")]
    return Facts(
        pid=pid,
        state=last.get("State", "?")[:1],
        leader=int(status.get("Tgid", pid)),
        tracer=tracer,
        tracer_name=_name(tracer) if tracer else "",
        parent=int(status.get("PPid", 0)),
        uid=int(status.get("Uid", "0").split()[1]) if len(status.get("Uid", "").split()) > 1 else 0,
        inner_pid=int(status.get("NSpid", str(pid)).split()[-1]),
        nested_user=not _shared(pid, "user"),
        nested_files=not _shared(pid, "mnt"),
        nested_pids=not _shared(pid, "pid"),
        executable=executable,
        python=_version([executable or "", *libraries, *sorted(files)]),
        shared_python=bool(libraries),
        torch=None if denied is not None else any("/libtorch" in path for path in files),
        mappings=tuple(mappings),
        denied=denied,
        of_the_kernel=of_the_kernel,
        ending="VmSize" not in last and not of_the_kernel and last.get("State", "?")[:1] not in "ZX",
    )


def read_status(folder: str) -> Optional[dict[str, str]]:
    """The pairs of a `status` file; None where it is gone."""
    try:
        text = pathlib.Path(folder, "status").read_text(errors="replace")
    except OSError:
        return None
    pairs = (line.partition(":") for line in text.splitlines())
    return {key: value.strip() for key, _, value in pairs}


def _of_the_kernel(pid: int) -> bool:
    with contextlib.suppress(OSError, IndexError, ValueError):
        # The fields after the name, which is in parentheses and may hold anything.
        fields = pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return bool(int(fields[6]) & _KERNEL_THREAD)
    return False


def threads(pid: int) -> list[int]:
    """The ids of its threads, the main one first; empty where it is gone."""
    with contextlib.suppress(OSError):
        return sorted((int(name) for name in os.listdir(f"/proc/{pid}/task")), key=lambda tid: (tid != pid, tid))
    return []


def _tracer(pid: int, status: dict[str, str]) -> int:
    own = int(status.get("TracerPid", 0))
    if own:
        return own
    for tid in threads(pid):
        other = read_status(f"/proc/{pid}/task/{tid}")
        if other is not None and int(other.get("TracerPid", 0)):
            return int(other["TracerPid"])
    return 0


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return printable(pathlib.Path(f"/proc/{pid}/comm").read_text(errors="replace").strip())
    return ""


def _shared(pid: int, kind: str) -> bool:
    """Whether a namespace is this process's own too; taken to be where it cannot be read."""
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return True


def _version(paths: list[str]) -> Optional[tuple[int, int]]:
    for path in paths:
        found = _VERSION.search(path)
        if found is not None:
            return int(found[1]), int(found[2])
    return None
