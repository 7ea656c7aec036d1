"""The supervisor's process: started by the viewer, detached from it, gone when its program is."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

if not __package__:  # run by path: in isolated mode nothing of the installation is on sys.path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from memtui.supervisor import child, messages
from memtui.supervisor.listener import Listener
from memtui.supervisor.request import StartReport, StartRequest
from memtui.supervisor.ring import OutputRing
from memtui.supervisor.supervisor import Supervisor
from memtui.supervisor.viewer import Story
from memtui.wire import paths

#: Signals meant for a terminal's foreground, which this process never is. SIGKILL is what remains.
_DEAF_TO = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def main() -> None:
    """Read a StartRequest from standard input, answer with a StartReport on standard output, and supervise."""
    # Detached first: the viewer waits for this process, and must not have a child that ends some day unseen.
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    with open(0, "rb", closefd=False) as source:
        request = StartRequest.from_json(source.read())
    report_to = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)
    for descriptor in request.stdio:
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
    ignored = frozenset(
        number
        for number in signal.valid_signals()
        if signal.getsignal(number) == signal.SIG_IGN and number not in child.IGNORED_BY_PYTHON
    )
    wakeup = _hear_signals()
    try:
        supervisor, report = _start(request, ignored)
    except child.StartError as error:
        _report(report_to, StartReport(failed_step=error.step, errno=error.errno, reason=error.reason))
        return
    # Of the program's own descriptors nothing stays open here: the reader of a pipe waits for the last of them.
    for descriptor in {*request.stdio, *request.inherited}:
        if descriptor >= 0:
            os.close(descriptor)
    _report(report_to, report)
    os.chdir("/")  # a folder in use could not be unmounted
    supervisor.run(wakeup)


def _hear_signals() -> int:
    for number in _DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)  # the loop reads the number from the pipe
    return read_end


def _start(request: StartRequest, ignored: frozenset[int]) -> tuple[Supervisor, StartReport]:
    program = child.start(request, ignored)
    listener = Listener(lambda: paths.run_socket_path(program.pid))
    try:
        listener.open()
    except (OSError, paths.PathError) as error:
        program.abandon()
        raise child.StartError("socket", getattr(error, "errno", None), str(error)) from error
    try:
        program.let_go()
    except child.StartError:
        listener.close()
        raise
    start = messages.write(
        messages.Kind.START,
        pid=program.pid,
        argv=request.argv,
        cwd=request.cwd,
        started_at=program.started_at,
        pty=request.pty,
    )
    supervisor = Supervisor(
        program,
        Story(OutputRing(request.ring_bytes), start),
        listener,
        keep_seconds=request.keep_seconds,
        check_seconds=request.check_seconds,
        grace_seconds=request.grace_seconds,
    )
    return supervisor, StartReport(pid=program.pid, supervisor_pid=os.getpid(), started_at=program.started_at)


def _report(descriptor: int, report: StartReport) -> None:
    # The viewer may be gone already; the program is not to suffer for it.
    with contextlib.suppress(OSError):
        os.write(descriptor, report.to_json())
    os.close(descriptor)


if __name__ == "__main__":
    main()
