"""Running a program to its end with the caller's own streams, as if memtui were not there."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

from memtui.sources.program import ExitStatus, NotSupervised, ProgramStart, read_exit
from memtui.sources.program_connection import ProgramConnection
from memtui.sources.program_launch import launch
from memtui.supervisor import messages
from memtui.supervisor.messages import Kind

#: Signals passed on, and whether to the whole group: a terminal's keys reach all of it, `kill PID` one process.
_TO_GROUP = {
    signal.SIGINT: True,
    signal.SIGQUIT: True,
    signal.SIGTSTP: True,
    signal.SIGCONT: True,
    signal.SIGTERM: False,
    signal.SIGUSR1: False,
    signal.SIGUSR2: False,
    signal.SIGWINCH: False,
}


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    *,
    direct_pid_variable: str | None = "MEMTUI_DIRECT",
    started: Callable[[ProgramStart], None] | None = None,
) -> ExitStatus:
    """Run a program with this process's standard streams and pass signals on until it ends; main thread only.

    A hangup ends this process as ever, and leaves the program running. `started` is called once it runs.
    Raises ProgramError: LaunchFailed, or NotSupervised if the supervisor is killed.
    """
    with _recorded_signals() as wakeup:
        # Signals that come while it starts wait in the pipe until there is somebody to pass them to.
        start = launch(argv, env, cwd, pty=False, direct_pid_variable=direct_pid_variable)
        if started is not None:
            started(start)
        with ProgramConnection(start.pid) as connection:
            return _attend(connection, wakeup)


def leave_as(status: ExitStatus) -> NoReturn:
    """End this process the way the program ended: the same code, or the same signal."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # full, or closed from the beginning
            stream.flush()
    if status.signal is not None:
        # One core file is enough, and it is the program's.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to restore
            signal.signal(status.signal, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [status.signal])
        os.kill(os.getpid(), status.signal)
    os._exit(status.shell_code)  # also where the signal does not end a process


@contextlib.contextmanager
def _recorded_signals() -> Iterator[int]:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    # What is ignored here stays ignored, here and in the program: nohup, or a background job's SIGINT.
    numbers = [number for number in _TO_GROUP if signal.getsignal(number) != signal.SIG_IGN]
    before_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda number, frame: None) for number in numbers}
    try:
        yield read_end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        os.close(read_end)
        os.close(write_end)


def _attend(connection: ProgramConnection, wakeup: int) -> ExitStatus:
    supervisor = connection.fileno()
    asked_to_stop = False
    while True:
        ready = [supervisor] if connection.pending else select.select([supervisor, wakeup], [], [])[0]
        if wakeup in ready:
            numbers = os.read(wakeup, 4096)
            _pass_on(connection, numbers)
            asked_to_stop = signal.SIGTSTP in numbers or (asked_to_stop and signal.SIGCONT not in numbers)
        if supervisor not in ready:
            continue
        frames = connection.receive()
        if frames is None:
            raise NotSupervised("the supervisor was killed; the program may still run")
        for kind, payload in frames:
            if kind == Kind.EXIT:
                with contextlib.suppress(OSError):
                    connection.send(messages.write(Kind.COLLECTED))
                return read_exit(payload)
            if kind == Kind.STOPPED and messages.read(payload).get("stopped") and (asked_to_stop or _in_foreground()):
                # The shell is to see its job stopped, and to have its prompt back. Elsewhere nobody would wake this
                # process when somebody wakes the program.
                os.kill(os.getpid(), signal.SIGSTOP)


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _pass_on(connection: ProgramConnection, numbers: bytes) -> None:
    for number in numbers:
        group = _TO_GROUP.get(signal.Signals(number))
        if group is not None:
            with contextlib.suppress(OSError):
                connection.send(messages.write(Kind.SIGNAL, signal=number, group=group))
