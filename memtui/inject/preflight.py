"""Whether an agent can get into a process, found out without doing anything; what is in the way, with the way out."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Optional

from .process import Facts, read_facts
from .surroundings import Surroundings, read_surroundings
from .words import printable

#: The ways in, in the order in which they are tried.
PTRACE, REMOTE, GDB = "ptrace", "remote_exec", "gdb"
WAYS = (PTRACE, REMOTE, GDB)
_OLDEST = (3, 9)
_FIRST_REMOTE = (3, 14)
_RUN = "start the program with memtui run"


@dataclass(frozen=True)
class Refusal:
    """Something that is in the way: what is wrong, and what to do about it. `way` is None where it bars every way."""

    kind: str  # "stopped", "zombie", "thread", "traced", "user", "yama"...
    reason: str
    fix: str
    way: Optional[str] = None

    @property
    def text(self) -> str:
        """One line for the user."""
        return f"{self.reason}: {self.fix}" if self.fix else self.reason


@dataclass(frozen=True)
class Preflight:
    """What was found; there is a way in where `ways` is not empty."""

    pid: int
    facts: Optional[Facts]
    refusals: tuple[Refusal, ...]
    ways: tuple[str, ...]

    @property
    def refusal(self) -> Optional[Refusal]:
        """The one to tell first where there is no way in."""
        return None if self.ways or not self.refusals else self.refusals[0]


def check(pid: int) -> Preflight:
    """Looks at a process and at this one's rights over it."""
    # In this order: a process that ends in between is then seen to be ending, and not to forbid it.
    surroundings = read_surroundings(pid)
    facts = read_facts(pid)
    if facts is None:
        refusal = Refusal("missing", f"no such process: {pid}", "memtui ps lists what can be watched")
        return Preflight(pid, None, (refusal,), ())
    if facts.leader == os.getpid():
        refusal = Refusal("self", f"process {pid} is this memtui itself", "memtui ps lists what can be watched")
        return Preflight(pid, facts, (refusal,), ())
    return judge(facts, surroundings)


def judge(facts: Facts, surroundings: Surroundings) -> Preflight:
    """The same from what is known already."""
    general = _state(facts) or _rights(facts, surroundings) or _kind(facts)
    particular = [_ptrace(surroundings), _remote(facts, surroundings), _gdb(surroundings)]
    found = [refusal for refusal in [general, *particular] if refusal is not None]
    barred = set(WAYS) if general is not None else {refusal.way for refusal in particular if refusal is not None}
    return Preflight(facts.pid, facts, tuple(found), tuple(way for way in WAYS if way not in barred))


def _state(facts: Facts) -> Optional[Refusal]:  # noqa: PLR0911 - a table of reasons
    pid = facts.pid
    if facts.leader != pid:
        return Refusal("thread", f"{pid} is a thread of process {facts.leader}", f"memtui attach --pid {facts.leader}")
    if facts.state in "ZX":
        reason = f"process {pid} has ended; its parent {facts.parent} has not collected its exit status yet"
        return Refusal("zombie", reason, "")
    if facts.of_the_kernel:
        return Refusal("kernel", f"process {pid} is a thread of the kernel", "memtui ps lists what can be watched")
    if facts.ending:
        return Refusal("ending", f"process {pid} is ending", "")
    if facts.tracer:
        name = f" ({facts.tracer_name})" if facts.tracer_name else ""
        reason = f"process {pid} is traced already, by process {facts.tracer}{name}"
        return Refusal("traced", reason, "let that debugger detach first")
    if facts.state == "T":
        return Refusal("stopped", f"process {pid} is stopped", f"kill -CONT {pid} lets it go on")
    return None


def _rights(facts: Facts, surroundings: Surroundings) -> Optional[Refusal]:  # noqa: PLR0911 - a table of reasons
    if facts.denied is None and surroundings.memory_errno is None and surroundings.ptrace_errno is None:
        return None
    pid, again = facts.pid, f"sudo memtui attach --pid {facts.pid}"
    if surroundings.memory_errno in (errno.ENOENT, errno.ESRCH) and not os.path.exists(f"/proc/{pid}"):
        return Refusal("missing", f"no such process: {pid}", "memtui ps lists what can be watched")
    if surroundings.yama == 3:
        reason = "this machine forbids all tracing until it is restarted (kernel.yama.ptrace_scope is 3)"
        return Refusal("yama", reason, _RUN)
    if facts.uid != surroundings.uid and not surroundings.may_trace and surroundings.uid != 0:
        return Refusal("user", f"process {pid} belongs to user {facts.user}", again)
    if surroundings.ptrace_errno is not None:
        reason = "this process's seccomp filter forbids ptrace"
        return Refusal("seccomp", reason, "start the container with --security-opt seccomp=unconfined")
    if not surroundings.may_trace:
        return _without_capability(facts, surroundings, again)
    if facts.nested_user:
        reason = f"process {pid} is in a user namespace that this one has no rights over"
        return Refusal("namespace", reason, "attach inside its container, or as root of the machine")
    number = surroundings.memory_errno or facts.denied or errno.EPERM
    reason = f"a security module forbids tracing process {pid} ({errno.errorcode.get(number, number)})"
    return Refusal(
        "security", reason, f"allow ptrace in its policy (SELinux: deny_ptrace, AppArmor: ptrace), or {_RUN}"
    )


def _without_capability(facts: Facts, surroundings: Surroundings, again: str) -> Refusal:
    if surroundings.uid == 0:
        reason = "this root has no CAP_SYS_PTRACE, as in a container"
        return Refusal("capability", reason, "start the container with --cap-add SYS_PTRACE")
    if surroundings.yama == 2:
        reason = "only root may trace here (kernel.yama.ptrace_scope is 2)"
        return Refusal("yama", reason, again)
    if not surroundings.dumpable:
        reason = f"process {facts.pid} does not let itself be traced by its own user (it is not dumpable)"
        return Refusal("dumpable", reason, again)
    if surroundings.yama == 1:
        reason = "only a parent may trace its children here (kernel.yama.ptrace_scope is 1)"
        return Refusal("yama", reason, f"{again}, or sudo sysctl kernel.yama.ptrace_scope=0")
    if facts.nested_user:
        reason = f"process {facts.pid} is in a user namespace that this user has no rights over"
        return Refusal("namespace", reason, again)
    return Refusal("denied", f"process {facts.pid} may not be traced by this user", again)


def _kind(facts: Facts) -> Optional[Refusal]:
    what = printable((facts.executable or "its program").rpartition("/")[2])
    if facts.python is None:
        return Refusal("python", f"process {facts.pid} is no Python ({what})", "memtui ps lists what can be watched")
    version = ".".join(map(str, facts.python))
    if facts.python < _OLDEST:
        return Refusal("version", f"process {facts.pid} runs Python {version}", "the agent needs 3.9 or newer")
    if not facts.torch:
        reason = f"process {facts.pid} has not loaded PyTorch"
        return Refusal("torch", reason, f"attach again once it has, or {_RUN}")
    return None


def _ptrace(surroundings: Surroundings) -> Optional[Refusal]:
    if surroundings.machine == "x86_64":
        return None
    return Refusal(
        "machine", f"memtui's own way in is for x86-64, and this machine is {surroundings.machine}", "", PTRACE
    )


def _remote(facts: Facts, surroundings: Surroundings) -> Optional[Refusal]:
    if facts.python is None or facts.python < _FIRST_REMOTE:
        return Refusal("version", "sys.remote_exec is there from Python 3.14 on", "", REMOTE)
    if surroundings.remote_disabled:
        reason = "the program was started with PYTHON_DISABLE_REMOTE_DEBUG or -X disable_remote_debug"
        return Refusal("remote", reason, "start it without", REMOTE)
    return None


def _gdb(surroundings: Surroundings) -> Optional[Refusal]:
    if surroundings.debugger is not None:
        return None
    return Refusal("debugger", "gdb is not installed", "apt install gdb", GDB)
