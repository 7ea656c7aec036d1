"""What a supervisor says of its program, in one question."""

from __future__ import annotations

from typing import NamedTuple

from memtui.sources.program import NotSupervised, ProgramStart, read_start
from memtui.sources.program_connection import GREETING_SECONDS, ProgramConnection
from memtui.supervisor.messages import Kind


class ProgramState(NamedTuple):
    """A program under a supervisor: what was started, and whether it has ended."""

    start: ProgramStart
    ended: bool


def program_state(pid: int, patience_seconds: float = GREETING_SECONDS) -> ProgramState:
    """Asks the supervisor of program `pid`, which stays as it is; raises ProgramError."""
    with ProgramConnection(pid, patience_seconds) as connection:
        while True:
            frames = connection.receive()
            if frames is None:
                raise NotSupervised(f"the supervisor of process {pid} hung up")
            for kind, payload in frames:
                if kind == Kind.START:
                    start = read_start(payload, connection.hello.supervisor_pid)
                    return ProgramState(start, connection.hello.exited)
