"""Ending a program that was only started to be looked at."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Optional

from memtui.supervisor import messages
from memtui.supervisor.messages import Kind

from .program import ExitStatus, ProgramError, ProgramStart
from .program_connection import ProgramConnection, wait_for_exit

#: Ctrl-C ends a small training within a step; what takes longer is killed.
_PATIENCE_SECONDS = 3.0


def end_program(start: ProgramStart) -> Optional[ExitStatus]:
    """Ends a program as Ctrl-C does, so that it can say so, and kills it where it does not go soon; how it had ended
    before that, if it had. A Ctrl-C meanwhile kills it at once.
    """
    try:
        with ProgramConnection(start.pid) as connection:
            if connection.hello.exited:
                return wait_for_exit(connection)
            connection.send(messages.write(Kind.SIGNAL, signal=signal.SIGINT, group=True))
            if _ends_soon(connection):
                return None
    except (ProgramError, OSError, KeyboardInterrupt):
        pass
    kill_program(start)
    return None


def _ends_soon(connection: ProgramConnection) -> bool:
    until = time.monotonic() + _PATIENCE_SECONDS
    while connection.pending or select.select([connection], [], [], max(0.0, until - time.monotonic()))[0]:
        frames = connection.receive()
        if frames is None:
            return False
        if any(kind == Kind.EXIT for kind, _ in frames):
            with contextlib.suppress(OSError):
                connection.send(messages.write(Kind.COLLECTED))
            return True
    return False


def kill_program(start: ProgramStart) -> Optional[ExitStatus]:
    """Kills a program and all of its group; how it had ended before that, if it had."""
    try:
        with ProgramConnection(start.pid) as connection:
            if connection.hello.exited:
                return wait_for_exit(connection)
            connection.send(messages.write(Kind.SIGNAL, signal=signal.SIGKILL, group=True))
            wait_for_exit(connection)
    except (ProgramError, OSError):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(start.pid, signal.SIGKILL)
    return None
