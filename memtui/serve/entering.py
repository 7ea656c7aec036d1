"""Getting the agent into new trainings of this user, as they appear on a device."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from memtui.analysis.text import clean, command
from memtui.inject.attach import Outcome, attach
from memtui.sources.environ import environment_of

from .life import life_of

#: At once; each holds a thread of its process for some milliseconds.
_AT_ONCE = 2
#: A main thread that stays in one call for so long is tried again later.
_PATIENCE_SECONDS = 60.0
#: What keeps an agent out for a while only.
_PASSING = frozenset(("stopped", "traced", "torch"))


class Entering:
    """Tries each process once, or again where what was in the way may go; `said` hears a line of each that is new."""

    def __init__(self, patterns: Sequence[str], said: Callable[[str], None]) -> None:
        """`patterns` are of command lines: a name that stands in one, or with * and ? of a whole one; none: all."""
        self._patterns, self._said = tuple(patterns), said
        self._tried: dict[int, int] = {}  # when each began
        self._cancel = threading.Event()
        self._executor = ThreadPoolExecutor(_AT_ONCE, "memtui-entering")
        self._under_way: set[asyncio.Task[None]] = set()

    def consider(self, pids: set[int]) -> None:
        """Processes on a device that have no agent; on the event loop."""
        for pid in [pid for pid in self._tried if pid not in pids]:
            del self._tried[pid]
        for pid in pids:
            life = life_of(pid)
            if life is None or self._tried.get(pid) == life.started or not self._is_meant(pid):
                continue
            self._tried[pid] = life.started
            task = asyncio.ensure_future(self._enter(pid))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    def _is_meant(self, pid: int) -> bool:
        try:
            if pid == os.getpid() or os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                return False
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read(1 << 16).split(b"\0")
        except OSError:
            return False
        # Those that were started to get an agent by themselves do.
        if "/agent/bootstrap" in environment_of(pid).get("PYTHONPATH", ""):
            return False
        return matches(" ".join(map(os.fsdecode, words)).strip(), self._patterns)

    async def _enter(self, pid: int) -> None:
        outcome = await asyncio.get_running_loop().run_in_executor(self._executor, self._attach, pid)
        if outcome.status == "attached":
            if not outcome.already:
                self._said(f"the agent is in process {pid} ({_command(pid)})")
            return
        passing = outcome.status == "refused" and outcome.refusals[0].kind in _PASSING
        if passing or outcome.status in {"cancelled", "queued"}:
            self._tried.pop(pid, None)  # again at the next look
        elif not self._cancel.is_set():
            self._said(f"process {pid} ({_command(pid)}) gets no agent: {clean(outcome.text, 300)}")

    def _attach(self, pid: int) -> Outcome:
        return attach(pid, timeout=_PATIENCE_SECONDS, cancel=self._cancel)

    async def close(self) -> None:
        """Takes queued calls back; waits until each process is as it was, or watched."""
        self._cancel.set()
        if self._under_way:
            await asyncio.wait(self._under_way)
        self._executor.shutdown(wait=True)


def matches(line: str, patterns: Sequence[str]) -> bool:
    """Whether a command line is meant by one of the patterns; by none, all are."""
    return not patterns or any(
        fnmatch.fnmatchcase(line, each) if set(each) & set("*?[") else each in line for each in patterns
    )


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return command(map(os.fsdecode, file.read(4096).rstrip(b"\0").split(b"\0")), 80)
    except OSError:
        return "gone"
