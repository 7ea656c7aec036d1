"""A monitored program, seen from the viewer: what was started, how it ended, and the frames that say so.

`program_launch.launch` starts one, `program_client.connect` follows it on an event loop, `program_headless.run` runs
one to its end without an interface, and `program_replay.replay_to` prints what it had written.
"""

from __future__ import annotations

import signal
import socket
import struct
from dataclasses import dataclass
from typing import NamedTuple

from memtui.supervisor import messages
from memtui.supervisor.messages import Kind

from .sockets import Found, find_socket

_PEER = struct.Struct("3i")  # pid, uid, gid


class ProgramError(Exception):
    """Something about a monitored program failed; the message is one line for the user."""


class LaunchFailed(ProgramError):
    """The program did not start: `errno` is the system's reason where it gave one."""

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class NotSupervised(ProgramError):
    """No supervisor answers for this pid: not started by `memtui run`, or its end was collected long ago."""


class ProtocolMismatch(ProgramError):
    """The supervisor speaks another version of the protocol, or is none."""


class TerminalSize(NamedTuple):
    """Of the program's terminal, in cells."""

    columns: int
    rows: int


@dataclass(frozen=True)
class ProgramStart:
    """What was started. `started_at` is Unix time, seconds; `pty` says whether it has a terminal of its own."""

    pid: int
    supervisor_pid: int
    argv: tuple[str, ...]
    cwd: str
    started_at: float
    pty: bool


@dataclass(frozen=True)
class ExitStatus:
    """How a program ended: by `code`, or by `signal`, never both. `ended_at` is Unix time, seconds."""

    code: int | None
    signal: int | None
    core_dumped: bool
    ended_at: float

    @property
    def shell_code(self) -> int:
        """The code a shell would show: 128 + n for a death by signal n."""
        return self.code if self.code is not None else 128 + (self.signal or 0)

    def __str__(self) -> str:
        if self.code is not None:
            return f"exit code {self.code}"
        try:
            name = signal.Signals(self.signal or 0).name
        except ValueError:
            name = f"signal {self.signal}"
        return f"killed by {name}" + (" (core dumped)" if self.core_dumped else "")


def read_start(payload: bytes, supervisor_pid: int) -> ProgramStart:
    """A START frame's content; raises MessageError."""
    fields = messages.read(payload)
    try:
        argv = tuple(map(str, fields["argv"]))
        return ProgramStart(
            pid=int(fields["pid"]),
            supervisor_pid=supervisor_pid,
            argv=argv,
            cwd=str(fields["cwd"]),
            started_at=float(fields["started_at"]),
            pty=bool(fields["pty"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise messages.MessageError(f"start: {error!r}") from error


def read_exit(payload: bytes) -> ExitStatus:
    """An EXIT frame's content; raises MessageError."""
    fields = messages.read(payload)
    code, number = fields.get("code"), fields.get("signal")
    ended_at = fields.get("ended_at")
    if not (isinstance(code, int) or isinstance(number, int)) or not isinstance(ended_at, (int, float)):
        raise messages.MessageError(f"exit: {fields!r}")
    return ExitStatus(code, number, fields.get("core_dumped") is True, float(ended_at))


@dataclass(frozen=True)
class Hello:
    """What a supervisor says first: offsets of the output it has retained, in bytes from the beginning."""

    supervisor_pid: int
    history_start: int
    history_end: int
    #: The program has ended: its status follows the output it wrote itself.
    exited: bool


def read_hello(kind: int, payload: bytes) -> Hello:
    """The first frame of a connection; raises ProtocolMismatch."""
    try:
        fields = messages.read(payload) if kind == Kind.HELLO else {}
        if fields.get("protocol") != messages.PROTOCOL:
            raise ProtocolMismatch("what listens there is not a memtui supervisor")
        if fields.get("version") != messages.VERSION:
            raise ProtocolMismatch(
                f"the program was started by another memtui (protocol {fields.get('version')}, "
                f"this one speaks {messages.VERSION}): use that one"
            )
        return Hello(
            supervisor_pid=messages.integer(fields, "supervisor_pid", 1, 1 << 31),
            history_start=messages.integer(fields, "history_start", 0, 1 << 62),
            history_end=messages.integer(fields, "history_end", 0, 1 << 62),
            exited=fields.get("exited") is True,
        )
    except messages.MessageError as error:
        raise ProtocolMismatch(f"what listens there is not a memtui supervisor: {error}") from error


def check_peer(connected: socket.socket, owner: int) -> None:
    """Refuse a socket on which neither `owner` nor root listens: anybody could make one in /tmp and wait.

    Raises NotSupervised.
    """
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    if _PEER.unpack(credentials)[1] not in (owner, 0):
        raise NotSupervised("the socket there belongs to another user")


def hello_frame() -> bytes:
    """A viewer's first frame."""
    return messages.write(Kind.HELLO, protocol=messages.PROTOCOL, version=messages.VERSION)


def find_program(pid: int) -> Found:
    """Where the supervisor of program `pid` listens; raises NotSupervised."""
    found = find_socket("run", pid)
    if found is None:
        raise NotSupervised(f"process {pid} was not started by memtui run")
    return found
