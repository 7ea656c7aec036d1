"""Ending a program that was only started to be looked at."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Optional

from memtui.supervisor import messages
from memtui.supervisor.messages import Kind

from .program import ExitStatus, ProgramError, ProgramStart
from .program_connection import ProgramConnection, wait_for_exit


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
