"""Programs under real supervisors, for tests: started, watched, held at FIFOs, and cleaned up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from memtui.sources.program import ExitStatus, ProgramStart
from memtui.sources.program_client import ProgramClient, connect
from memtui.sources.program_launch import launch

#: Nothing here takes a second; a loaded machine may be 60 times slower than that.
PATIENCE_SECONDS = 60.0


class Gate:
    """A FIFO that holds a program: `wait` is the Python it runs to wait there, `open` lets it go on."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.path = folder / name
        os.mkfifo(self.path)
        self.wait = f"open({str(self.path)!r}).read()"

    def open(self) -> None:
        """Let the program go on; waits until it has come to the gate."""
        with open(self.path, "w"):
            pass


class Recorder:
    """A ProgramListener that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.replayed = b""
        self.live = b""
        self.lost_bytes = 0
        self.stopped: list[bool] = []
        self.status: ExitStatus | None = None
        self.closed = False
        self.close_reason: str | None = None
        self.events: list[str] = []
        self._changed = asyncio.Event()

    @property
    def output(self) -> bytes:
        return self.replayed + self.live

    def program_output(self, data: bytes, replayed: bool) -> None:
        if replayed:
            assert not self.live, "history after live output"
            self.replayed += data
        else:
            self.live += data
        self._note("output")

    def program_lost(self, lost_bytes: int) -> None:
        self.lost_bytes += lost_bytes
        self._note("lost")

    def program_stopped(self, stopped: bool) -> None:
        self.stopped.append(stopped)
        self._note("stopped")

    def program_exited(self, status: ExitStatus) -> None:
        self.status = status
        self._note("exited")

    def program_closed(self, reason: str | None) -> None:
        self.closed = True
        self.close_reason = reason
        self._note("closed")

    def _note(self, event: str) -> None:
        if self.events[-1:] != [event]:
            self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[Recorder], Any]) -> None:
        """Wait until something has happened; fails with what has."""

        async def wait() -> None:
            while not condition(self):
                assert not self.closed, f"closed before it happened; {self.events} {self.output[-500:]!r}"
                self._changed.clear()
                await self._changed.wait()

        try:
            await asyncio.wait_for(wait(), PATIENCE_SECONDS)
        except asyncio.TimeoutError:
            raise AssertionError(f"waited in vain; {self.events} {self.output[-500:]!r}") from None


class Programs:
    """Starts programs and makes sure that none outlives the test."""

    def __init__(self) -> None:
        self._started: list[ProgramStart] = []

    def start(self, *argv: str, pty: bool = True, env: dict[str, str] | None = None, **options: Any) -> ProgramStart:
        options.setdefault("grace_seconds", 0.0)
        options.setdefault("cwd", "/")
        start = launch(argv, dict(os.environ) if env is None else env, pty=pty, **options)
        self._started.append(start)
        return start

    def python(self, code: str, **options: Any) -> ProgramStart:
        """Start Python code; the standard library is all it has."""
        return self.start(sys.executable, "-I", "-S", "-c", code, **options)

    def stop(self) -> None:
        for start in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(start.supervisor_pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(start.pid, signal.SIGKILL)


async def watch(pid: int, **options: Any) -> tuple[ProgramClient, Recorder]:
    """A client and what it hears."""
    recorder = Recorder()
    return await connect(pid, recorder, **options), recorder


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for_end(start: ProgramStart) -> None:
    """Wait until the supervisor has seen the program's end; whoever connects then is told of it at once."""
    wait_until(lambda: not os.path.exists(f"/proc/{start.pid}"), "the program's end")


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """Poll for what no descriptor announces."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.01)


@contextlib.contextmanager
def runtime_folder(folder: pathlib.Path) -> Iterator[None]:
    """Sockets of this process and its children in `folder` instead of the user's own."""
    before = os.environ.get("MEMTUI_RUNTIME_DIR")
    os.environ["MEMTUI_RUNTIME_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MEMTUI_RUNTIME_DIR"]
        else:
            os.environ["MEMTUI_RUNTIME_DIR"] = before
