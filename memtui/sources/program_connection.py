"""A blocking connection to a program's supervisor, for use without an event loop."""

from __future__ import annotations

import contextlib
import os
import socket
from types import TracebackType

from memtui.sources.program import (
    ExitStatus,
    NotSupervised,
    ProtocolMismatch,
    check_peer,
    find_program,
    hello_frame,
    read_exit,
    read_hello,
)
from memtui.supervisor import framing, messages
from memtui.supervisor.messages import Kind

_RECEIVE_BYTES = 256 * 1024

#: A supervisor that does not even greet within this time is stopped or stuck.
GREETING_SECONDS = 20.0


class ProgramConnection:
    """Frames from the supervisor of program `pid`, in order; a context manager. Raises ProgramError."""

    def __init__(self, pid: int, patience_seconds: float = GREETING_SECONDS) -> None:
        self._decoder = framing.Decoder()
        self._early: list[tuple[int, bytes]] = []
        found = find_program(pid)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(patience_seconds)
            self._socket.connect(os.fspath(found.path))
            check_peer(self._socket, found.owner)
            self.send(hello_frame())
            while not self._early:
                received = self._receive()
                if received is None:
                    raise NotSupervised(f"the supervisor of process {pid} hung up")
                self._early += received
            self._socket.settimeout(None)
        except OSError as error:
            self._socket.close()
            raise NotSupervised(f"the supervisor of process {pid} does not answer: {error}") from error
        except NotSupervised:
            self._socket.close()
            raise
        self.hello = read_hello(*self._early.pop(0))

    def receive(self) -> list[tuple[int, bytes]] | None:
        """Wait for frames, one or more of them; None where the supervisor has hung up. Raises ProgramError."""
        if self._early:
            frames, self._early = self._early, []
            return frames
        while True:
            frames_or_end = self._receive()
            if frames_or_end is None or frames_or_end:
                return frames_or_end

    def _receive(self) -> list[tuple[int, bytes]] | None:
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except ConnectionError:
            return None
        try:
            return self._decoder.feed(data) if data else None
        except framing.FramingError as error:
            raise ProtocolMismatch(f"what listens there is not a memtui supervisor: {error}") from error

    @property
    def pending(self) -> bool:
        """Whether `receive` returns at once whatever `fileno` says: frames came along with the greeting."""
        return bool(self._early)

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        """Send a frame; raises OSError where the supervisor has gone."""
        self._socket.sendall(frame)

    def close(self) -> None:
        """Leave; the program goes on."""
        self._socket.close()

    def __enter__(self) -> ProgramConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def wait_for_exit(connection: ProgramConnection) -> ExitStatus | None:
    """Read until the program has ended; its status, which counts as collected, or None where the supervisor goes."""
    while True:
        frames = connection.receive()
        if frames is None:
            return None
        for kind, payload in frames:
            if kind == Kind.EXIT:
                with contextlib.suppress(OSError):
                    connection.send(messages.write(Kind.COLLECTED))
                return read_exit(payload)
