"""One viewer's connection to one agent."""

from __future__ import annotations

import os
import socket

from memtui.inject.process import read_status
from memtui.sources.agent_probe import AgentError, check_owner
from memtui.sources.sockets import find_socket
from memtui.wire.relaying import CHANNEL_BYTES

from .stream import Stream

#: What a viewer asks of an agent is short.
_MOST_ASKED_BYTES = 64 << 10
_CHUNK = 1 << 18
_CONNECT_SECONDS = 3.0


class ChannelError(Exception):
    """There is no such connection; the message is one line for the user."""


class Channel:
    """Non-blocking; what the viewer's credit allows is given out."""

    def __init__(self, pid: int) -> None:
        """Connects to the agent of a process; raises ChannelError."""
        self.pid = pid
        self.stream = Stream()
        self.credit = CHANNEL_BYTES
        self._asked = bytearray()
        found = find_socket("agent", pid)
        if found is None:
            raise ChannelError(_absent(pid))
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            check_owner(found.path)
            self.socket.settimeout(_CONNECT_SECONDS)
            self.socket.connect(os.fspath(found.path))
        except ConnectionRefusedError:
            self.socket.close()
            raise ChannelError(f"nobody listens on {found.path}: the agent is gone") from None
        except (AgentError, OSError) as error:
            self.socket.close()
            raise ChannelError(str(error)) from None
        self.socket.setblocking(False)

    @property
    def asks(self) -> bool:
        """Whether something waits to be written to the agent."""
        return bool(self._asked)

    @property
    def ready(self) -> bool:
        """Whether there is something to be given out, and credit for it."""
        return self.credit > 0 and not self.stream.empty

    def ask(self, data: bytes) -> None:
        """Passes on what the viewer says; raises ChannelError."""
        self._asked += data
        if len(self._asked) > _MOST_ASKED_BYTES:
            raise ChannelError("the agent does not read what it is asked")
        self.write()

    def write(self) -> None:
        """Sends what the agent takes; raises ChannelError."""
        try:
            while self._asked:
                del self._asked[: self.socket.send(self._asked)]
        except BlockingIOError:
            pass
        except OSError:
            raise ChannelError("") from None

    def read(self) -> bool:
        """Takes what the agent has sent; False at its end. Raises CodecError."""
        try:
            data = self.socket.recv(_CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if data:
            self.stream.take(data)
        return bool(data)

    def piece(self, most: int) -> bytes:
        """The next bytes for the viewer."""
        given = self.stream.piece(min(most, self.credit))
        self.credit -= len(given)
        return given

    def close(self) -> None:
        """Hangs up."""
        self.socket.close()


def _absent(pid: int) -> str:
    status = read_status(f"/proc/{pid}")
    if status is None:
        return f"process {pid} has ended"
    return "no agent in this process so far"
