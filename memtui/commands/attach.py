"""`memtui attach`: a process that runs already."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, Optional

from memtui.analysis.analyst import Analyst
from memtui.cli import CommandError
from memtui.inject.process import read_status
from memtui.sources.agent_probe import AgentError, find_agent, probe
from memtui.sources.sockets import find_socket
from memtui.sources.virtual_driver import use_driver_of_process

from .entry import dry_run, enter, unload
from .screen import check_terminal, show, wants_app

# The rest of the viewer takes longer to import than an agent to get in, and is imported meanwhile.
if TYPE_CHECKING:
    from memtui.session.session import Session
    from memtui.sources.gathered import Gathered
    from memtui.sources.log_writer import LogWriter
    from memtui.sources.monitor import Monitor
    from memtui.sources.program_state import ProgramState
    from memtui.sources.ranks import Ranks


def attach(options: argparse.Namespace) -> int:
    """Watches a process until it ends or is left; the status of a program that `memtui run` started."""
    if options.exact_peaks:
        raise CommandError(
            "exact peaks are asked for when a program starts: memtui run --exact-peaks, "
            "or memtui.start(exact_peaks=True) in it",
            2,
        )
    if options.targets or options.hosts is not None or options.slurm:
        from .attach_hosts import attach_hosts

        return attach_hosts(options)
    if options.all:
        from .everything import attach_all, unload_all

        return unload_all() if options.unload and not options.dry_run else attach_all(dry=options.dry_run)
    pid: Optional[int] = options.pid if options.pid is not None else _pick(options)
    if pid is None:
        return 0
    program = _program(pid) if find_socket("run", pid) is not None else None
    if program is not None and program.ended:
        return _show_end(program, options)
    supervised = program is not None
    if not supervised:
        check_process(pid)
    if options.dry_run:
        return dry_run(pid)
    from memtui.sources.launched import has_ranks, with_agents

    # A launcher stands for its ranks, and needs no agent of its own.
    enters = not (supervised or has_ranks(pid) or check_agent(pid, supervised))
    use_driver_of_process(pid)
    if options.unload and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _hung_up)  # also where the terminal is closed
    try:
        return _watch(pid, options, supervised=supervised, enters=enters)
    finally:
        if options.unload:
            for each in (*(rank.pid for rank in with_agents(pid)), pid):
                unload(each)


def _hung_up(number: int, _frame: Optional[FrameType]) -> NoReturn:
    raise SystemExit(128 + number)


def _program(pid: int) -> Optional[ProgramState]:
    """What its supervisor says; None where only a socket was left behind."""
    from memtui.sources.program import NotSupervised, ProgramError
    from memtui.sources.program_state import program_state
    from memtui.supervisor.messages import MessageError

    try:
        return program_state(pid)
    except NotSupervised:
        return None
    except (ProgramError, MessageError) as error:
        raise CommandError(str(error)) from None


def _watch(pid: int, options: argparse.Namespace, *, supervised: bool, enters: bool) -> int:
    app = wants_app(options)
    log: Optional[LogWriter] = None
    if options.log is not None:  # before anything is done to the process: perhaps it cannot be written
        from .run import open_log

        log = open_log(options)
    if enters and not app:
        enter(pid, quiet=options.quiet, meanwhile=_read_ahead)
    from memtui.sources.monitor import Monitor
    from memtui.sources.ranks import Ranks

    from .run import tell_going_on

    lead = Monitor(
        pid,
        supervised=supervised,
        collect=False,
        log=log,
        enter=enters and app,
        analyst=Analyst(asked=options.max_shape),
    )
    ranks = Ranks(lead, search=not supervised, analyst=lambda _rank: Analyst(asked=options.max_shape), log=log)
    if not app:
        return watch_lines(ranks, options)
    check_terminal()
    kind = show(ranks, options)
    if supervised and kind != "detach":
        return _leave(pid, kind, ranks.telling)
    if not supervised:
        from .exhausted import tell_failed
        from .ownline import OwnLines

        tell_failed(ranks, OwnLines(sys.stderr))
    if kind == "detach":
        tell_going_on(pid)
    return 0


def _read_ahead() -> None:
    threading.Thread(target=importlib.import_module, args=("memtui.commands.headless",), daemon=True).start()


def _pick(options: argparse.Namespace) -> Optional[int]:
    """The process that the user picks from a list; None where they leave it."""
    if not wants_app(options) or options.dry_run:
        raise CommandError("which process? memtui ps lists those that can be watched: memtui attach --pid PID", 2)
    from memtui.tui.picker import pick

    check_terminal()
    return pick(theme=options.theme)


def _leave(pid: int, kind: str, session: Session) -> int:
    """As `memtui run` leaves; 0 where another viewer has printed the output and taken the status already."""
    from .run import leave_app

    try:
        return leave_app(pid, kind, session)
    except CommandError:
        if find_socket("run", pid) is not None:
            raise
        return 0


def _show_end(program: ProgramState, options: argparse.Namespace) -> int:
    """What a program that has ended had written, and its status, which then need not be kept any longer."""
    from memtui.analysis.verdict import end_text
    from memtui.sources.monitor import Monitor
    from memtui.sources.program import ProgramError
    from memtui.sources.program_replay import replay_to

    from .exhausted import tell_kept
    from .ownline import OwnLines
    from .run import end_of, open_log, tell_failure

    pid, log = program.start.pid, open_log(options)
    app = wants_app(options)
    if app:
        check_terminal()
        label = " ".join(program.start.argv)
        show(
            Monitor(
                pid, supervised=True, collect=False, log=log, label=label, analyst=Analyst(asked=options.max_shape)
            ),
            options,
        )
    sys.stdout.flush()
    try:
        status, last_words = replay_to(pid, 1)
    except ProgramError as error:
        raise CommandError(str(error)) from None
    if status is None:
        raise CommandError(f"the supervisor of process {pid} hung up")
    if app:
        tell_failure(status, last_words)
        return status.shell_code
    end = end_of(status)
    if log is not None:
        log.end(end)
        log.close()
    if not options.quiet:
        # Nobody else writes there: where the output ended is known.
        unfinished = last_words[-1:] not in (b"", b"\n")
        lines = OwnLines(sys.stdout, shared=unfinished)
        lines.say(f"memtui: {end_text(end)}")
        tell_kept(pid, program.start.started_at, lines)
    return status.shell_code


def watch_lines(
    monitor: Monitor | Ranks | Gathered, options: argparse.Namespace, more_signals: tuple[int, ...] = ()
) -> int:
    """Prints lines on standard output until the process ends, enough are out, or Ctrl-C; 0."""
    import asyncio

    from .headless import print_lines
    from .ownline import OwnLines

    async def watch() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, *more_signals):
            loop.add_signal_handler(number, stopped.set)
        lines = OwnLines(None if options.quiet else sys.stdout)
        await print_lines(monitor, lines, options.frames, options.device, stopped, at_once=True)

    asyncio.run(watch())
    return 0


def check_process(pid: int) -> None:
    """Raises CommandError, with the way out, where `pid` is no living process."""
    status = read_status(f"/proc/{pid}") if pid > 0 else None
    if status is None:
        from memtui.sources.kept import kept_log

        kept = kept_log(pid, 0.0)
        way_out = "memtui ps lists what can be watched"
        if kept is not None:
            way_out = f"one of that number ran out of memory: memtui open {kept} shows its last figures"
        raise CommandError(f"no such process: {pid}; {way_out}")
    leader = int(status.get("Tgid", str(pid)))
    if leader != pid:
        raise CommandError(f"{pid} is a thread of process {leader}: memtui attach --pid {leader}")
    if status.get("State", "").startswith(("Z", "X")):
        parent = status.get("PPid", "?")
        raise CommandError(f"process {pid} has ended; its parent {parent} has not collected its exit status yet")


def check_agent(pid: int, supervised: bool) -> bool:
    """Whether there is an agent to talk to; raises CommandError where it speaks another version."""
    found: Optional[int] = pid
    if supervised:
        from memtui.sources.relatives import choose_agent

        found = choose_agent(pid)
    path = find_agent(found) if found is not None else None
    if path is None or found is None:
        return False
    try:
        probe(path, found)
    except AgentError as error:
        raise CommandError(str(error)) from None
    return True
