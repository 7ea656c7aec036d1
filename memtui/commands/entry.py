"""Getting the agent into a process on the command line, and out of it again."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

from memtui.cli import CommandError
from memtui.inject.attach import PATIENCE_SECONDS, Progress, attach
from memtui.inject.preflight import check
from memtui.inject.process import read_status
from memtui.sources.agent_probe import AgentError, find_agent, request_unloading

_AT_STEP = "is busy, and the agent goes within its next step"
_SWITCH_SECONDS = 0.0002
_WAYS = {
    "ptrace": "ptrace and a pending call",
    "remote_exec": "sys.remote_exec of its own interpreter",
    "gdb": "gdb and a pending call",
}


def enter(pid: int, *, quiet: bool = False, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Gets the agent in, and says on standard error what it is at; Ctrl-C takes a queued call back.

    `meanwhile` is called once nothing is held any more. Raises CommandError where the agent does not get in.
    """
    cancel, said = threading.Event(), ""

    def tell(progress: Progress) -> None:
        nonlocal said
        if progress.stage == "queued":
            meanwhile()
        if progress.stage in {"waiting", "failed"} and progress.text != said:
            said = progress.text
            print(f"memtui: process {pid}: {said}", file=sys.stderr, flush=True)

    with _interrupts(cancel), _quick_switches():
        outcome = attach(pid, timeout=PATIENCE_SECONDS, progress=tell, cancel=cancel)
    if outcome.status == "cancelled" and cancel.is_set():
        raise CommandError(f"taken back: {outcome.text}", 130)
    if outcome.status != "attached":
        raise CommandError(outcome.text)
    if not quiet and not outcome.already:
        held = "" if outcome.paused_ns is None else f", a thread of it was held for {outcome.paused_ns / 1e6:.1f} ms"
        print(f"memtui: {outcome.text} ({outcome.way}{held})", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _interrupts(cancel: threading.Event) -> Iterator[None]:
    hangup = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    numbers = (signal.SIGINT, signal.SIGTERM, *hangup)
    before = {number: signal.signal(number, lambda *_: cancel.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _quick_switches() -> Iterator[None]:
    # A thread of the program's is held for no longer because another thread of this process has Python's lock.
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def dry_run(pid: int) -> int:
    """Says what attaching would do; 0 where it would be allowed."""
    if find_agent(pid) is not None:
        print(f"process {pid} has an agent: attaching connects to it; nothing was touched")
        return 0
    found = check(pid)
    if found.refusal is not None:
        raise CommandError(found.refusal.text)
    facts = found.facts
    version = ".".join(map(str, facts.python)) if facts is not None and facts.python is not None else "?"
    first, *others = (_WAYS[way] for way in found.ways)
    then = f"; failing that, by {', then by '.join(others)}" if others else ""
    print(f"process {pid} (Python {version}, PyTorch loaded): the agent would get in by {first}{then}")
    for refusal in found.refusals:
        print(f"not by {_WAYS.get(refusal.way or '', refusal.way)}: {refusal.text}")
    print("nothing was touched")
    return 0


def unload(pid: int) -> bool:
    """Takes the agent out of a process, which may have none any more; False where it goes later.

    Raises CommandError where it stays.
    """
    try:
        path = find_agent(pid)
        if path is not None and not request_unloading(path):
            stopped = (read_status(f"/proc/{pid}") or {}).get("State", "")[:1] in {"T", "t"}
            when = f"is stopped, and the agent goes once it goes on: kill -CONT {pid}" if stopped else _AT_STEP
            print(f"memtui: process {pid} {when}", file=sys.stderr)
            return False
    except (AgentError, OSError, socket.timeout) as error:
        raise CommandError(f"the agent of process {pid} could not be taken out: {error}") from None
    return True
