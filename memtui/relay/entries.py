"""Getting agents in and out, each on a thread of its own, so that the link goes on meanwhile."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from memtui.inject.attach import PATIENCE_SECONDS, Progress, attach
from memtui.inject.preflight import check
from memtui.sources.agent_probe import AgentError, find_agent, probe, request_unloading
from memtui.sources.sockets import find_socket

#: A thread of a program's is held for no longer because another thread of this process has Python's lock.
_SWITCH_SECONDS = 0.0002
_LEAVE_SECONDS = 5.0
Tell = Callable[[dict[str, Any]], None]


class Entries:
    """`tell` is called on the threads."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._cancels: dict[int, threading.Event] = {}
        self._threads: list[threading.Thread] = []
        sys.setswitchinterval(_SWITCH_SECONDS)

    def enter(self, pid: int) -> None:
        """Begins to get the agent into a process; "entry" tells how far it is, and "entered" how it ended."""
        if pid in self._cancels:
            return
        cancel = self._cancels[pid] = threading.Event()

        def tell(progress: Progress) -> None:
            text = "" if progress.stage == "started" else progress.text
            self._tell({"is": "entry", "pid": pid, "stage": progress.stage, "text": text})

        def work() -> None:
            outcome = attach(pid, timeout=PATIENCE_SECONDS, progress=tell, cancel=cancel)
            self._cancels.pop(pid, None)
            refusal = outcome.refusals[0].kind if outcome.refusals else ""
            held = outcome.paused_ns
            told = {"status": outcome.status, "text": outcome.text, "way": outcome.way or "", "refusal": refusal}
            self._tell({"is": "entered", "pid": pid, "already": outcome.already, "paused_ns": held, **told})

        self._start(pid, work)

    def cancel(self, pid: int) -> None:
        """Takes a queued call back."""
        cancel = self._cancels.get(pid)
        if cancel is not None:
            cancel.set()

    def unload(self, number: int, pid: int) -> None:
        """Takes the agent out; the answer says how that ended."""

        def work() -> None:
            text, done = "", True
            try:
                path = find_agent(pid)
                done = path is None or request_unloading(path)
            except (AgentError, OSError, socket.timeout) as error:
                text = f"the agent of process {pid} could not be taken out: {error}"
            self._tell({"is": "answer", "number": number, "done": done, "text": text})

        self._start(pid, work)

    def check(self, number: int, pid: int) -> None:
        """Says what attaching would meet; touches nothing."""

        def work() -> None:
            path, trouble = find_agent(pid), ""
            if path is not None:
                try:
                    probe(path, pid)
                except AgentError as error:
                    trouble = str(error)
                # The socket of one that was killed stays; that of a container's may be another's pid here.
                if not trouble or os.path.exists(f"/proc/{pid}"):
                    self._tell({"is": "answer", "number": number, "agent": True, "text": trouble})
                    return
            found = check(pid)
            if found.facts is None and _supervised(pid):
                text = f"process {pid}, which memtui run has started, has ended"
                self._tell({"is": "answer", "number": number, "agent": False, "kind": "ended", "text": text})
                return
            facts, refusal = found.facts, found.refusal
            self._tell(
                {
                    "is": "answer",
                    "number": number,
                    "agent": False,
                    "text": "" if refusal is None else refusal.reason,
                    "fix": "" if refusal is None else refusal.fix,
                    "owner": "" if facts is None else facts.user,
                    "kind": "" if refusal is None else refusal.kind,
                    "python": list(facts.python) if facts is not None and facts.python is not None else [],
                    "ways": list(found.ways),
                    "others": [[each.way or "", each.text] for each in found.refusals],
                }
            )

        self._start(pid, work)

    def close(self) -> None:
        """Takes everything back that is queued; waits until processes are as they were, or watched."""
        for cancel in list(self._cancels.values()):
            cancel.set()
        for thread in self._threads:
            thread.join(_LEAVE_SECONDS)

    def _start(self, pid: int, work: Callable[[], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]

        def told() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - nobody else would hear of it, and the viewer waits
                self._tell(
                    {"is": "entered", "pid": pid, "status": "failed", "text": f"{type(error).__name__}: {error}"}
                )

        thread = threading.Thread(target=told, name="memtui-relay", daemon=True)
        self._threads.append(thread)
        thread.start()


def _supervised(pid: int) -> bool:
    """Whether a supervisor still keeps what was a program's: it goes once somebody has taken the status."""
    found = find_socket("run", pid)
    if found is None:
        return False
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_LEAVE_SECONDS)
        try:
            connection.connect(os.fspath(found.path))
        except OSError:
            return False
    return True
