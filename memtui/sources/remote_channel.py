"""One agent's stream within a link: for who reads it here, one end of a pair of sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from memtui.wire.relaying import CHANNEL_BYTES, CLOSE, DATA, PIECE_BYTES, LinkError, credit, frame


class Channel:
    """Passes bytes between a socket of this process and a link; in the loop of the link."""

    def __init__(self, number: int, near: socket.socket, send: Callable[[bytes], None]) -> None:
        self.number = number
        self.reason = ""  # why it has ended
        self._near, self._send = near, send
        self._waiting = bytearray()
        self._ended = self._closed = self._writing = False
        self._loop = asyncio.get_running_loop()
        near.setblocking(False)
        self._loop.add_reader(near, self._read)

    @property
    def closed(self) -> bool:
        """Whether nothing more goes through it."""
        return self._closed

    def _read(self) -> None:
        try:
            data = self._near.recv(PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._send(frame(DATA, self.number, data))
        else:
            self._send(frame(CLOSE, self.number))
            self.close()

    def take(self, data: bytes) -> None:
        """Takes what the agent says; raises LinkError where that is more than was allowed."""
        if self._closed:
            return
        self._waiting += data
        if len(self._waiting) > CHANNEL_BYTES:
            raise LinkError("more of an agent than was asked for")
        self._write()

    def _write(self) -> None:
        try:
            while self._waiting:
                sent = self._near.send(self._waiting)
                del self._waiting[:sent]
                self._send(credit(self.number, sent))
        except BlockingIOError:
            pass
        except OSError:
            self._send(frame(CLOSE, self.number))
            self.close()
            return
        if bool(self._waiting) != self._writing:
            self._writing = bool(self._waiting)
            if self._writing:
                self._loop.add_writer(self._near, self._write)
            else:
                self._loop.remove_writer(self._near)
        if self._ended and not self._waiting:
            self.close()

    def end(self, reason: str) -> None:
        """The agent has hung up, or the link is gone: what has come is passed on first."""
        if self._closed:
            return
        self.reason, self._ended = reason, True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Hangs up on this side."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(RuntimeError, ValueError):
            self._loop.remove_reader(self._near)
            self._loop.remove_writer(self._near)
        self._near.close()
