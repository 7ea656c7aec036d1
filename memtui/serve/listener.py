"""A small HTTP server for scrapers: each gets so much time and so many bytes, and none is waited for by another."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Optional

#: Connections that ask, and that are answered, at once: of more, the oldest goes.
MOST_CONNECTIONS = 64
#: For the whole request, the handshake included; and for all of it, the answer taken.
_REQUEST_SECONDS, _ANSWER_SECONDS = 5.0, 30.0
_MOST_REQUEST_BYTES = 16 << 10
_CHUNK = 1 << 16
#: What those hear that have asked and must go, as far as they take it at once.
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Request(NamedTuple):
    """What was asked; names of headers are in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]


class Response(NamedTuple):
    """What is answered; `status` is a code and its words."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes


Answer = Callable[[Request], Awaitable[Response]]


class Listener:
    """Accepts until it is closed. `refused` is told of each connection that got no answer, and why."""

    def __init__(
        self, listening: socket.socket, answer: Answer, refused: Callable[[str], None], tls: Optional[ssl.SSLContext]
    ) -> None:
        self._socket, self._answer, self._refused, self._tls = listening, answer, refused, tls
        self._asking: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._answered: dict[asyncio.Task[None], None] = {}  # that take their answer
        self._open: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Goes on until it is cancelled; then no connection is left."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connection, _ = await loop.sock_accept(self._socket)
                except OSError:  # out of file descriptors, or gone again
                    await asyncio.sleep(0.1)
                    continue
                task = asyncio.ensure_future(self._serve(connection))
                self._open.add(task)
                self._asking[task] = None
                task.add_done_callback(self._forget)
                self._make_room(self._asking)
                await asyncio.sleep(0)  # else many that come at once would all be accepted before one is heard
        finally:
            for task in list(self._open):
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            self._socket.close()

    def _make_room(self, kept: dict[asyncio.Task[None], None]) -> None:
        if len(kept) > MOST_CONNECTIONS:
            oldest = next(iter(kept))
            del kept[oldest]
            self._refused("busy")
            oldest.cancel()

    def _has_asked(self) -> None:
        task = asyncio.current_task()
        if task in self._asking:
            del self._asking[task]
            self._answered[task] = None
            self._make_room(self._answered)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._asking.pop(task, None)
        self._answered.pop(task, None)

    async def _serve(self, connection: socket.socket) -> None:
        transport: Optional[asyncio.BaseTransport] = None
        try:
            reader = asyncio.StreamReader(limit=_MOST_REQUEST_BYTES)
            protocol = asyncio.StreamReaderProtocol(reader)
            asked = asyncio.wait_for(self._ask(connection, reader, protocol), _REQUEST_SECONDS)
            transport, request = await asked
            writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
            self._has_asked()
            await asyncio.wait_for(self._tell(writer, request), _ANSWER_SECONDS)
        except asyncio.TimeoutError:
            self._refused("slow")
        except (ssl.SSLError, asyncio.LimitOverrunError, asyncio.IncompleteReadError, ConnectionError, OSError):
            self._refused("request")
        finally:
            if isinstance(transport, asyncio.Transport):
                transport.abort()
            with contextlib.suppress(OSError):
                connection.close()

    async def _ask(
        self, connection: socket.socket, reader: asyncio.StreamReader, protocol: asyncio.StreamReaderProtocol
    ) -> tuple[asyncio.WriteTransport, Optional[Request]]:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        seconds = None if self._tls is None else _REQUEST_SECONDS
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=self._tls, ssl_handshake_timeout=seconds
        )
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except BaseException:
            transport.abort()
            raise
        return transport, read_request(head)

    async def _tell(self, writer: asyncio.StreamWriter, request: Optional[Request]) -> None:
        if request is None:
            self._refused("request")
            response = Response("400 Bad Request", [], b"")
        else:
            try:
                response = await self._answer(request)
            except asyncio.CancelledError:
                writer.write(_BUSY)  # what the kernel does not take at once is lost: nobody waits for it
                raise
        lines = [f"HTTP/1.1 {response.status}", *(f"{name}: {value}" for name, value in response.headers)]
        lines += [f"Content-Length: {len(response.body)}", "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode("latin-1"))
        for start in range(0, len(response.body), _CHUNK):
            writer.write(response.body[start : start + _CHUNK])
            await writer.drain()
        writer.close()
        await writer.wait_closed()


def read_request(head: bytes) -> Optional[Request]:
    """None for what is no HTTP request."""
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return None
    headers = {}
    for line in rest:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
        elif line:
            return None
    path, _, query = words[1].partition("?")
    return Request(words[0], path, query, headers)
