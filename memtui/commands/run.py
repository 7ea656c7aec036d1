"""`memtui run`: a program, started with the agent in it, and watched."""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, Optional

from memtui import __version__
from memtui.analysis.analyst import Analyst
from memtui.analysis.verdict import end_text
from memtui.cli import CommandError
from memtui.session.session import End, Session
from memtui.sources.log_format import LogError
from memtui.sources.log_writer import LogWriter
from memtui.sources.monitor import Monitor
from memtui.sources.program import ExitStatus, LaunchFailed, ProgramError, ProgramStart, TerminalSize
from memtui.sources.ranks import Ranks

from .headless_ranks import RankLines
from .lastwords import exception_line
from .ownline import OwnLines
from .program import current_folder, resolve, with_agent
from .screen import check_terminal, show, wants_app

if TYPE_CHECKING:
    from .reporting import Noting, Reporting

_CLOSING_SECONDS = 3.0


def run(options: argparse.Namespace) -> int:
    """Starts the program and watches it; the exit status is the program's, 0 where it was left running."""
    argv, label = resolve(options.program)
    env = with_agent(exact_peaks=options.exact_peaks)
    reporting = None if options.report is None else _reporting(options)
    if wants_app(options):
        return run_in_app(argv, env, label, options, reporting)
    return run_headless(argv, env, label, options, reporting)


def _reporting(options: argparse.Namespace) -> Reporting:
    from .reporting import Reporting

    return Reporting(options.report, options.device)


def open_log(options: argparse.Namespace) -> Optional[LogWriter]:
    """The log that was asked for; raises CommandError."""
    if options.log is None:
        return None
    try:
        return LogWriter(options.log, __version__)
    except LogError as error:
        raise CommandError(str(error)) from None


def launch_failed(error: LaunchFailed) -> CommandError:
    """What a shell's status would be for a program that did not start."""
    statuses = {errno.ENOENT: 127, errno.EACCES: 126, errno.ENOEXEC: 126}
    return CommandError(str(error), statuses.get(error.errno or 0, 1))


# In the app


def run_in_app(
    argv: list[str],
    env: dict[str, str],
    label: str,
    options: argparse.Namespace,
    reporting: Optional[Reporting] = None,
) -> int:
    """The program on a terminal of its own, the app on this one; its output is printed when the app is left."""
    from memtui.sources.program_launch import launch

    check_terminal()
    log = open_log(options)
    size = shutil.get_terminal_size()
    try:
        start = launch(argv, env, current_folder(), pty=True, size=TerminalSize(size.columns, max(1, size.lines - 3)))
    except LaunchFailed as error:
        raise launch_failed(error) from None
    ranks = watched(start.pid, label, log, options, reporting)
    kind = show(ranks, options)

    def last(status: Optional[ExitStatus]) -> None:
        if status is not None and status.shell_code and kind != "stop":
            RankLines(ranks).tell_end(OwnLines(sys.stderr))
        if reporting is not None:
            reporting.tell(ranks, status)

    return leave_app(start.pid, kind, ranks.telling, last)


def watched(
    pid: int, label: str, log: Optional[LogWriter], options: argparse.Namespace, reporting: Optional[Reporting] = None
) -> Ranks:
    """A program that was started here, and its ranks should it start any."""

    def analyst(_rank: Optional[int] = None) -> Analyst | Noting:
        found = Analyst(asked=options.max_shape)
        return found if reporting is None else reporting.noting(found)

    lead = Monitor(pid, supervised=True, collect=False, log=log, label=label, analyst=analyst())
    return Ranks(lead, analyst=analyst, log=log)


def leave_app(
    pid: int,
    kind: str,
    session: Optional[Session] = None,
    last: Callable[[Optional[ExitStatus]], None] = lambda _status: None,
) -> int:
    """Prints what the program wrote, as it would have been, and why it ran out of memory if that ended it; its status,
    or 0 where it goes on. `last` comes after.
    """
    from memtui.sources.program_headless import leave_as
    from memtui.sources.program_replay import replay_to

    sys.stdout.flush()
    try:
        stopped = _stop(pid) if kind == "stop" else None
        printed = replay_to(pid, 1)
    except ProgramError as error:
        raise CommandError(str(error)) from None
    except BrokenPipeError:
        return 141
    status = printed.status or stopped
    if status is None:
        tell_going_on(pid)
        last(None)
        return 0
    if kind != "stop":
        if session is not None and status.shell_code:
            from .exhausted import tell_last

            tell_last(session, OwnLines(sys.stderr))
        tell_failure(status, printed.last_words)
    last(status)
    return leave_as(status)


def tell_failure(status: ExitStatus, last_words: bytes) -> None:
    """Says on standard error how a program failed, below its output."""
    if status.shell_code:
        # With this status Python ends by an exception of which nobody took notice, and that is the last it writes.
        why = exception_line(last_words.decode(errors="replace")) if status.code in (1, 2) else ""
        OwnLines(sys.stderr).say(f"memtui: {end_text(end_of(status, why))}")


def tell_going_on(pid: int, *, shared: bool = False) -> None:
    """Says on standard error that a program was left running, and how to come back to it."""
    OwnLines(sys.stderr, shared=shared).say(f"memtui: process {pid} goes on; memtui attach --pid {pid} shows it again")


def end_of(status: ExitStatus, why: str = "") -> End:
    """The end of a program whose status is known."""
    return End(time.monotonic_ns(), status.code if status.signal is None else -status.signal, text=why)


def _stop(pid: int) -> Optional[ExitStatus]:
    """Interrupts the program and waits for its end; Ctrl-C meanwhile asks it again, harder each time."""
    from memtui.commands.stopping import stop_program

    return stop_program(pid)


# Without the app


class _Detach(Exception):
    """Raised in the main thread when enough lines are out."""


def run_headless(
    argv: list[str],
    env: dict[str, str],
    label: str,
    options: argparse.Namespace,
    reporting: Optional[Reporting] = None,
) -> int:
    """The program with this process's own streams; memtui's lines go to standard error."""
    from memtui.sources.program_headless import leave_as
    from memtui.sources.program_headless import run as run_program

    log = open_log(options)
    watcher = _Watcher(log, label, options, reporting)

    def detach(number: int, frame: Optional[FrameType]) -> NoReturn:
        raise _Detach

    signal.signal(signal.SIGALRM, detach)
    try:
        status = run_program(argv, env, current_folder(), started=watcher.start)
    except _Detach:
        tell_going_on(watcher.pid, shared=True)
        if reporting is not None:
            reporting.tell(watcher.finish(), None, shared=True)
        return 0
    except LaunchFailed as error:
        raise launch_failed(error) from None
    except ProgramError as error:
        OwnLines(sys.stderr, shared=True).say(f"memtui: {error}")
        return 1
    finally:
        ranks = watcher.finish()
    if reporting is not None:
        reporting.tell(ranks, status, shared=True)
    return leave_as(status)


class _Watcher:
    """The monitor in a thread of its own, beside a main thread that is busy passing signals on."""

    def __init__(
        self, log: Optional[LogWriter], label: str, options: argparse.Namespace, reporting: Optional[Reporting]
    ) -> None:
        self.pid = 0
        self._reporting = reporting
        self._ranks: Optional[Ranks] = None
        self._log, self._label, self._options = log, label, options
        self._thread: Optional[threading.Thread] = None
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._stopped: Optional[asyncio.Event] = None

    def start(self, program: ProgramStart) -> None:
        self.pid = program.pid
        # A daemon: the program's end is passed on whatever becomes of the lines.
        self._thread = threading.Thread(target=self._run, name="memtui-lines", daemon=True)
        self._thread.start()

    def finish(self) -> Optional[Ranks]:
        """Waits a moment for the last line and the end of the log; what was watched, unless it is still at work."""
        if self._thread is not None:
            self._thread.join(_CLOSING_SECONDS)
        done = self._thread is not None and not self._thread.is_alive()
        return self._ranks if done else None

    def _run(self) -> None:
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        from .headless import print_lines

        ranks = self._ranks = watched(self.pid, self._label, self._log, self._options, self._reporting)
        lines = OwnLines(None if self._options.quiet else sys.stderr, shared=True)
        ended = await print_lines(ranks, lines, self._options.frames, self._options.device, asyncio.Event())
        if not ended:
            os.kill(os.getpid(), signal.SIGALRM)
