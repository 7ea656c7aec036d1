"""How an agent is reached: on this machine by its socket; on another one see `remote_place`."""

from __future__ import annotations

import asyncio
import os
import pathlib
import socket
import struct
from typing import Any, Optional, Protocol

from .agent_probe import AgentError, check_owner

_CONNECT_SECONDS = 3.0
_DIAL_SECONDS = 10.0


class Way(Protocol):
    """A way to one agent; a connection is as to its socket."""

    @property
    def silence(self) -> str:
        """Why it does not answer, as far as the system knows."""

    @property
    def ended(self) -> str:
        """Why the last connection has ended; "" where that is not known."""

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection; raises AgentError and OSError."""

    def dial(self) -> socket.socket:
        """The same, for a thread that may wait."""

    def moved(self, message: Any) -> Any:
        """A message with its instants on this machine's clock; raises CodecError."""


class SocketWay:
    """To an agent on this machine."""

    ended = ""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    @property
    def silence(self) -> str:
        """By its process's state."""
        pid = self.path.stem.rpartition("-")[2]
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            state = ""
        if state == "T":
            return f"the agent does not answer: the process is stopped (T); kill -CONT {pid} lets it go on"
        if state == "t":
            return "the agent does not answer: a debugger holds the process (t)"
        return "the agent is silent: its process is in a long call that holds Python, or what listens there is no agent"

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects; raises AgentError and OSError."""
        check_owner(self.path)
        try:
            connecting = asyncio.open_unix_connection(os.fspath(self.path))
            reader, writer = await asyncio.wait_for(connecting, _CONNECT_SECONDS)
        except asyncio.TimeoutError:
            raise AgentError(self.silence) from None
        except ConnectionRefusedError:
            raise AgentError(f"nobody listens on {self.path}: the agent is gone") from None
        peer = _peer_uid(writer.get_extra_info("socket"))
        if peer not in (None, os.geteuid()) and os.geteuid() != 0:
            writer.close()
            raise AgentError(f"what listens on {self.path} belongs to another user")
        return reader, writer

    def dial(self) -> socket.socket:
        """Connects; raises AgentError and OSError."""
        check_owner(self.path)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_DIAL_SECONDS)
        try:
            connection.connect(os.fspath(self.path))
        except OSError as error:
            connection.close()
            if isinstance(error, ConnectionRefusedError):
                raise AgentError("nobody listens: the agent has gone") from None
            raise
        return connection

    def moved(self, message: Any) -> Any:
        """As it is."""
        return message


def _peer_uid(connection: socket.socket) -> Optional[int]:
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    size = struct.calcsize("3i")
    return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[1])
