"""What an agent sends, taken from its socket when it suits, never waited for."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import struct
from typing import Optional

from memtui.sources.agent_probe import AgentError, check_owner
from memtui.wire import codec
from memtui.wire.frames import PROTOCOL, Request

_CHUNK = 1 << 16


class AgentStream:
    """One connection. Bodies of messages come as they are, so that who does not want one need not decode it."""

    def __init__(self, path: pathlib.Path) -> None:
        """Connects and asks for the past; raises AgentError and OSError, BlockingIOError where nobody accepts."""
        check_owner(path)
        self._splitter = codec.Splitter()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        try:
            self._socket.connect(os.fspath(path))
            self.pid, uid = _peer(self._socket)  # as this process sees it, 0 where it does not
            if uid not in (None, os.geteuid()) and os.geteuid() != 0:
                raise AgentError(f"what listens on {path} belongs to another user")
            self._socket.sendall(codec.encode(Request("hello", PROTOCOL, history=True, passive=True)))
        except BaseException:
            self._socket.close()
            raise

    def read(self, most: int) -> tuple[list[bytes], int, bool]:
        """(what is there, of `most` bytes or little more; how many bytes that were; whether it has hung up).

        Raises CodecError.
        """
        bodies: list[bytes] = []
        size = 0
        while size < most:
            try:
                data = self._socket.recv(_CHUNK)
            except BlockingIOError:
                return bodies, size, False
            except OSError:
                data = b""
            if not data:
                return bodies, size, True
            size += len(data)
            bodies += self._splitter.feed(data)
        return bodies, size, False

    def close(self) -> None:
        """Hangs up."""
        with contextlib.suppress(OSError):
            self._socket.close()


def _peer(connection: socket.socket) -> tuple[int, Optional[int]]:
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, None
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(pid), int(uid)
