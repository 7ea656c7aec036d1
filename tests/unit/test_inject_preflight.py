"""What is in the way of an agent, and the fix that is named for it."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from memtui.inject.preflight import GDB, PTRACE, REMOTE, Refusal, judge
from memtui.inject.process import Facts
from memtui.inject.surroundings import Surroundings

FACTS = Facts(
    pid=70,
    state="S",
    leader=70,
    tracer=0,
    tracer_name="",
    parent=1,
    uid=4242,
    inner_pid=70,
    nested_user=False,
    nested_files=False,
    nested_pids=False,
    executable="/usr/bin/python3.11",
    python=(3, 11),
    torch=True,
)
ROOT = Surroundings(
    uid=0,
    machine="x86_64",
    may_trace=True,
    yama=None,
    memory_errno=None,
    ptrace_errno=None,
    dumpable=True,
    remote_disabled=False,
    debugger="/usr/bin/gdb",
)
OWNER = replace(ROOT, uid=4242, may_trace=False, memory_errno=errno.EACCES)
AGAIN = "sudo memtui attach --pid 70"


def refusal(facts: Facts, surroundings: Surroundings) -> Refusal:
    found = judge(facts, surroundings)
    assert found.refusal is not None
    assert not found.ways
    assert "\n" not in found.refusal.text
    return found.refusal


@pytest.mark.parametrize(
    ("changes", "kind", "fix"),
    [
        ({"state": "T"}, "stopped", "kill -CONT 70 lets it go on"),
        ({"state": "Z"}, "zombie", ""),
        ({"leader": 66}, "thread", "memtui attach --pid 66"),
        ({"tracer": 9, "tracer_name": "strace"}, "traced", "let that debugger detach first"),
        ({"python": None, "executable": "/bin/sleep"}, "python", "memtui ps lists what can be watched"),
        ({"python": (3, 8)}, "version", "the agent needs 3.9 or newer"),
        ({"torch": False}, "torch", "attach again once it has, or start the program with memtui run"),
    ],
)
def test_a_process_that_is_no_training_in_order(changes: dict[str, object], kind: str, fix: str) -> None:
    found = refusal(replace(FACTS, **changes), ROOT)  # type: ignore[arg-type]
    assert (found.kind, found.fix) == (kind, fix)


@pytest.mark.parametrize(
    ("surroundings", "facts", "kind", "fix"),
    [
        (replace(OWNER, yama=1), FACTS, "yama", f"{AGAIN}, or sudo sysctl kernel.yama.ptrace_scope=0"),
        (replace(OWNER, yama=2), FACTS, "yama", AGAIN),
        (replace(OWNER, yama=3), FACTS, "yama", "start the program with memtui run"),
        (replace(OWNER, uid=9), FACTS, "user", AGAIN),
        (replace(OWNER, uid=0), FACTS, "capability", "start the container with --cap-add SYS_PTRACE"),
        (replace(OWNER, dumpable=False, yama=1), FACTS, "dumpable", AGAIN),
        (OWNER, FACTS, "denied", AGAIN),
        (OWNER, replace(FACTS, nested_user=True), "namespace", AGAIN),
        (
            replace(ROOT, ptrace_errno=errno.EPERM),
            FACTS,
            "seccomp",
            "start the container with --security-opt seccomp=unconfined",
        ),
        (
            replace(ROOT, memory_errno=errno.EACCES),
            FACTS,
            "security",
            "allow ptrace in its policy (SELinux: deny_ptrace, AppArmor: ptrace), or start the program with memtui run",
        ),
    ],
)
def test_rights_that_are_missing(surroundings: Surroundings, facts: Facts, kind: str, fix: str) -> None:
    found = refusal(facts, surroundings)
    assert (found.kind, found.fix) == (kind, fix)


def test_ways_in() -> None:
    newer = replace(FACTS, python=(3, 14))
    assert judge(FACTS, ROOT).ways == (PTRACE, GDB)
    assert judge(newer, ROOT).ways == (PTRACE, REMOTE, GDB)
    assert judge(newer, replace(ROOT, remote_disabled=True)).ways == (PTRACE, GDB)
    elsewhere = replace(ROOT, machine="aarch64", debugger=None)
    assert judge(newer, elsewhere).ways == (REMOTE,)
    none = judge(FACTS, elsewhere)
    assert not none.ways
    assert [found.kind for found in none.refusals] == ["machine", "version", "debugger"]
