"""Starting the program: the pty, the process groups, and the errors between fork and exec."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import termios
import time
from typing import NamedTuple

from memtui.supervisor.request import StartRequest

#: Python ignores these two in itself; a program expects the system's default.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

_STEPS = {b"c": "command", b"f": "folder", b"t": "terminal"}


class StartError(Exception):
    """The program could not be started: `step` as in StartReport, `errno` and the system's words for it."""

    def __init__(self, step: str, number: int | None, reason: str) -> None:
        super().__init__(reason)
        self.step = step
        self.errno = number
        self.reason = reason


class Child(NamedTuple):
    """A started program that waits to be let go."""

    pid: int
    started_at: float
    #: The supervisor's side of the terminal, non-blocking; None where the program has the caller's streams.
    master: int | None
    #: The program's side, kept open so that the terminal outlives a program that closes its own descriptors.
    slave: int | None
    #: Writing to the first lets it go; the second tells what went wrong, or closes.
    go: int
    errors: int

    def let_go(self) -> None:
        """Let the program execute; raises StartError where the system refuses, and reaps what is left then."""
        os.write(self.go, b"g")
        os.close(self.go)
        with open(self.errors, "rb") as errors:
            report = errors.read()
        if report:
            os.waitpid(self.pid, 0)
            number = int(report[1:])
            raise StartError(_STEPS[report[:1]], number, os.strerror(number))

    def abandon(self) -> None:
        """End the waiting process before it has executed anything."""
        os.close(self.go)
        os.close(self.errors)
        os.waitpid(self.pid, 0)


def open_terminal(columns: int, rows: int) -> tuple[int, int]:
    """A new pty of that size as (master, slave), made the controlling terminal of this session; raises StartError."""
    try:
        master, slave = os.openpty()
        set_size(master, columns, rows)
        attributes = termios.tcgetattr(slave)
        # Two keys that freeze a training for good if struck by accident: control-S, which stops the output and with
        # it the next print, and control-Z, which no shell is there to undo.
        attributes[0] &= ~termios.IXON
        attributes[0] |= 0o40000  # IUTF8: backspace takes a whole character back (not in the termios module)
        attributes[6][termios.VSUSP] = b"\x00"
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        # The terminal is the supervisor's and not the program's, as it is a shell's: when a session's leader exits,
        # the kernel hangs the terminal up, and grandchildren that still write to it would die.
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        os.set_blocking(master, False)
    except (OSError, termios.error) as error:
        raise StartError("terminal", error.args[0], str(error.args[1])) from error
    return master, slave


def set_size(master: int, columns: int, rows: int) -> None:
    """Set the window size; the kernel signals SIGWINCH to the foreground if it changed."""
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def start(request: StartRequest, ignored: frozenset[int]) -> Child:
    """Fork the program and hold it before exec; `ignored` are the signals it is to find ignored. Raises StartError."""
    master, slave = open_terminal(request.columns, request.rows) if request.pty else (None, None)
    go_read, go_write = os.pipe()
    errors_read, errors_write = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        raise StartError("fork", error.errno, str(error.strerror)) from error
    if pid == 0:
        os.close(go_write)  # else nobody's death would be seen in it
        _become_program(request, ignored, slave, go_read, errors_write)
    os.close(go_read)
    os.close(errors_write)
    return Child(pid, time.time(), master, slave, go_write, errors_read)


def _become_program(
    request: StartRequest, ignored: frozenset[int], slave: int | None, go: int, errors: int
) -> None:  # never returns; NoReturn would make the caller's last lines unreachable to the type checker
    step = b"c"
    try:
        os.setpgid(0, 0)
        if os.read(go, 1) != b"g":
            os._exit(127)
        _restore_signals(ignored)
        if slave is None:
            _place(request.stdio)
        else:
            step = b"t"
            _take_foreground(slave)
            _place([slave, slave, slave])
        step = b"f"
        os.chdir(request.cwd)
        step = b"c"
        env = dict(request.env)
        if request.direct_pid_variable:
            env[request.direct_pid_variable] = str(os.getpid())
        _execute(request.argv, env)
    except OSError as error:
        os.write(errors, step + b"%d" % (error.errno or errno.EIO))
    except ValueError:  # a NUL in an argument or in the environment
        os.write(errors, step + b"%d" % errno.EINVAL)
    finally:
        os._exit(127)


def _restore_signals(ignored: frozenset[int]) -> None:
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)


def _take_foreground(slave: int) -> None:
    # A background group that takes the foreground is stopped by SIGTTOU, unless it ignores it.
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(slave, os.getpid())
    signal.signal(signal.SIGTTOU, before)


def _place(sources: list[int]) -> None:
    # Upwards first: a source may itself be 0, 1 or 2.
    lifted = [fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, 3) if source >= 0 else -1 for source in sources]
    for target, source in enumerate(lifted):
        if source >= 0:
            os.dup2(source, target)
        else:
            os.close(target)


def _execute(argv: list[str], env: dict[str, str]) -> None:
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        # A script without a first line "#!": a shell runs it itself.
        if error.errno != errno.ENOEXEC or "/" not in argv[0]:
            raise
        os.execve("/bin/sh", ["sh", *argv], env)
