"""`memtui attach`: a process whose agent is running."""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import pwd
import signal
import sys
import time
from typing import Optional

from memtui.analysis.verdict import end_text
from memtui.cli import CommandError
from memtui.session.session import End
from memtui.sources.agent_socket import AgentError, find_agent, probe
from memtui.sources.monitor import Monitor
from memtui.sources.program import NotSupervised, ProgramError
from memtui.sources.program_state import ProgramState, program_state
from memtui.sources.relatives import choose_agent
from memtui.sources.sockets import find_socket
from memtui.sources.virtual_driver import use_driver_of_process
from memtui.supervisor.messages import MessageError

from .run import open_log
from .screen import check_terminal, show, wants_app


def attach(options: argparse.Namespace) -> int:
    """Watches process `options.pid` until it ends or is left: 0. A program's status where it had ended before."""
    pid: int = options.pid
    try:
        program = program_state(pid) if find_socket("run", pid) is not None else None
    except NotSupervised:
        program = None  # a socket that was left behind
    except (ProgramError, MessageError) as error:
        raise CommandError(str(error)) from None
    if program is not None and program.ended:
        return _show_end(program, options)
    supervised = program is not None
    if not supervised:
        check_process(pid)
    check_agent(pid, supervised)
    use_driver_of_process(pid)
    if wants_app(options):
        check_terminal()
        monitor = Monitor(pid, supervised=supervised, log=open_log(options))
        kind = show(monitor, options)
        if kind == "stop":
            from .stopping import stop_program

            stop_program(pid)
        elif kind == "detach":
            print(f"memtui: process {pid} goes on; memtui attach --pid {pid} shows it again", file=sys.stderr)
        return 0
    monitor = Monitor(pid, supervised=supervised, collect=False, log=open_log(options))
    return watch_lines(monitor, options)


def _show_end(program: ProgramState, options: argparse.Namespace) -> int:
    """What a program that has ended had written, and its status, which then need not be kept any longer."""
    from memtui.sources.program_replay import replay_to

    pid, log = program.start.pid, open_log(options)
    app = wants_app(options)
    if app:
        check_terminal()
        label = " ".join(program.start.argv)
        show(Monitor(pid, supervised=True, collect=False, log=log, label=label), options)
    sys.stdout.flush()
    try:
        status = replay_to(pid, 1)
    except ProgramError as error:
        raise CommandError(str(error)) from None
    if status is None:
        raise CommandError(f"the supervisor of process {pid} hung up")
    if app:
        return status.shell_code
    end = End(time.monotonic_ns(), status.code if status.signal is None else -status.signal)
    if log is not None:
        log.end(end)
        log.close()
    if not options.quiet:
        print(f"memtui: {end_text(end)}", flush=True)
    return status.shell_code


def watch_lines(monitor: Monitor, options: argparse.Namespace, more_signals: tuple[int, ...] = ()) -> int:
    """Prints lines on standard output until the process ends, enough are out, or Ctrl-C; 0."""
    from .headless import print_lines

    async def watch() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, *more_signals):
            loop.add_signal_handler(number, stopped.set)
        await print_lines(monitor, None if options.quiet else sys.stdout, options.frames, options.device, stopped)

    asyncio.run(watch())
    return 0


def check_process(pid: int) -> None:
    """Raises CommandError, with the way out, where `pid` is no living process of this user."""
    status = _status(pid)
    if status is None:
        raise CommandError(f"no such process: {pid}; memtui ps lists what can be watched")
    leader = int(status.get("Tgid", str(pid)))
    if leader != pid:
        raise CommandError(f"{pid} is a thread of process {leader}: memtui attach --pid {leader}")
    if status.get("State", "").startswith(("Z", "X")):
        parent = status.get("PPid", "?")
        raise CommandError(f"process {pid} has ended; its parent {parent} has not collected its exit status yet")
    owner = int(status.get("Uid", "0").split()[0])
    if owner != os.geteuid() and os.geteuid() != 0:
        raise CommandError(f"process {pid} belongs to {_user(owner)}: watch it as that user, or as root with sudo")


def check_agent(pid: int, supervised: bool) -> None:
    """Raises CommandError where nothing in the process can be talked to, or it speaks another version."""
    found = choose_agent(pid) if supervised else pid
    path = find_agent(found) if found is not None else None
    if path is None:
        if supervised:
            return  # memtui run started it: its agent appears when torch is imported
        raise CommandError(
            f"process {pid} has no memtui agent, and getting into a running process is not possible yet: "
            "start it with memtui run, or call memtui.start() in it"
        )
    try:
        probe(path)
    except AgentError as error:
        raise CommandError(str(error)) from None


def _status(pid: int) -> Optional[dict[str, str]]:
    if pid <= 0:
        return None
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    pairs = (line.partition(":") for line in text.splitlines())
    return {key: value.strip() for key, _, value in pairs}


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
