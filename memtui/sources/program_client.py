"""Following a monitored program on the event loop: its output and its end, typing, resizing, signals."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Protocol

from memtui.sources.program import (
    ExitStatus,
    Hello,
    NotSupervised,
    ProgramError,
    ProgramStart,
    ProtocolMismatch,
    check_peer,
    find_program,
    hello_frame,
    read_exit,
    read_hello,
    read_start,
)
from memtui.supervisor import framing, messages
from memtui.supervisor.messages import Kind

#: Input travels in frames of this size at most.
_INPUT_BYTES = 64 * 1024


class ProgramListener(Protocol):
    """Hears about a program, on the event loop, in the order in which things happened."""

    def program_output(self, data: bytes, replayed: bool) -> None:
        """Output; `replayed` where it was written before this viewer connected."""

    def program_lost(self, lost_bytes: int) -> None:
        """Output the supervisor no longer had when this viewer was ready for it."""

    def program_stopped(self, stopped: bool) -> None:
        """It was stopped by a signal, or continues."""

    def program_exited(self, status: ExitStatus) -> None:
        """It ended; descendants of it may still write."""

    def program_closed(self, reason: str | None) -> None:
        """Nothing more comes: None after an orderly end, else why the connection broke."""


class ProgramClient(asyncio.Protocol):
    """A live connection to a program's supervisor; made by `connect`."""

    def __init__(self, listener: ProgramListener, collect: bool, owner: int) -> None:
        self._listener = listener
        self._collect = collect
        self._owner = owner
        self._decoder = framing.Decoder()
        self._transport: asyncio.Transport | None = None
        self._hello: Hello | None = None
        self._position = 0
        self._ended = False
        self._reason: str | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.start: ProgramStart | None = None
        self.exit_status: ExitStatus | None = None

    async def ready(self) -> ProgramStart:
        """Wait for the supervisor's greeting; raises ProgramError."""
        await self._ready
        assert self.start is not None
        return self.start

    def send_input(self, data: bytes) -> None:
        """Type into the program's terminal; what it does not read within 1 MiB is dropped."""
        for begin in range(0, len(data), _INPUT_BYTES):
            self._send(framing.encode(Kind.INPUT, data[begin : begin + _INPUT_BYTES]))

    def send_reply(self, data: bytes) -> None:
        """Answer a query the program made of its terminal; the supervisor takes one viewer's answers only."""
        self._send(framing.encode(Kind.REPLY, data))

    def resize(self, columns: int, rows: int) -> None:
        """Give the program's terminal this size, in cells."""
        self._send(messages.write(Kind.RESIZE, columns=max(1, columns), rows=max(1, rows)))

    def send_signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the program, or to its process group as a terminal's keys do."""
        self._send(messages.write(Kind.SIGNAL, signal=int(number), group=group))

    def collect(self) -> None:
        """Tell the supervisor that the exit status has been seen and need not be kept."""
        self._send(messages.write(Kind.COLLECTED))

    def close(self) -> None:
        """Leave; the program goes on."""
        if self._transport is not None:
            self._ended = True
            self._transport.close()

    def _send(self, frame: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        try:
            check_peer(transport.get_extra_info("socket"), self._owner)
        except NotSupervised as error:
            self._ready.set_exception(error)
            transport.abort()
            return
        self._transport = transport
        self._send(hello_frame())

    def data_received(self, data: bytes) -> None:
        try:
            for kind, payload in self._decoder.feed(data):
                self._hear(kind, payload)
        except (framing.FramingError, messages.MessageError, ProtocolMismatch) as error:
            self._reason = str(error)
            if not self._ready.done():
                self._ready.set_exception(error if isinstance(error, ProgramError) else ProtocolMismatch(str(error)))
            assert self._transport is not None
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ready.done():
            self._ready.set_exception(NotSupervised("the supervisor hung up"))
            return
        if self.start is None:
            return  # `ready` has said why
        self._listener.program_closed(None if self._ended else self._reason or "the supervisor is gone")

    def _hear(self, kind: int, payload: bytes) -> None:
        if self._hello is None:
            self._hello = read_hello(kind, payload)
            self._position = 0
        elif kind == Kind.START:
            self.start = read_start(payload, self._hello.supervisor_pid)
            if not self._ready.done():
                self._ready.set_result(None)
        elif kind == Kind.OUTPUT:
            offset, data = messages.read_output(payload)
            if offset > self._position:
                self._listener.program_lost(offset - self._position)
            self._position = offset + len(data)
            # A frame may straddle the moment of connecting.
            old = max(0, min(len(data), self._hello.history_end - offset))
            if old:
                self._listener.program_output(data[:old], replayed=True)
            if old < len(data):
                self._listener.program_output(data[old:], replayed=False)
        elif kind == Kind.STOPPED:
            self._listener.program_stopped(messages.read(payload).get("stopped") is True)
        elif kind == Kind.EXIT:
            self.exit_status = read_exit(payload)
            self._listener.program_exited(self.exit_status)
            if self._collect:
                self.collect()
        elif kind == Kind.END:
            self._ended = True
            self._listener.program_closed(None)
            self._listener = _Deaf()


class _Deaf:
    """Takes a listener's place when it has heard the end."""

    def program_output(self, data: bytes, replayed: bool) -> None: ...

    def program_lost(self, lost_bytes: int) -> None: ...

    def program_stopped(self, stopped: bool) -> None: ...

    def program_exited(self, status: ExitStatus) -> None: ...

    def program_closed(self, reason: str | None) -> None: ...


async def connect(pid: int, listener: ProgramListener, *, collect: bool = True) -> ProgramClient:
    """Connect to the supervisor of program `pid`: the retained output follows, then the live stream.

    With `collect` the exit status counts as delivered once `listener` has it, and the supervisor may go; without, it
    stays for whoever collects it later (`replay_to`, the next viewer). Raises ProgramError.
    """
    found = find_program(pid)
    loop = asyncio.get_running_loop()

    def make() -> ProgramClient:
        return ProgramClient(listener, collect, found.owner)

    try:
        client: ProgramClient
        _transport: Any
        _transport, client = await loop.create_unix_connection(make, os.fspath(found.path))
    except OSError as error:
        raise NotSupervised(f"the supervisor of process {pid} does not answer: {error.strerror or error}") from error
    await client.ready()
    return client
