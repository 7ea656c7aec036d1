"""The reader against an agent of straw, on a real socket."""

from __future__ import annotations

import asyncio
import os
import pathlib
from collections.abc import Awaitable, Callable
from typing import Optional

import pytest

from memtui.session.session import Session
from memtui.sources.agent_probe import AgentError, probe
from memtui.sources.agent_socket import AgentReader
from memtui.sources.agent_way import SocketWay
from memtui.wire import codec
from memtui.wire.frames import PROTOCOL, Bye, DeviceFrame, Event, Frame, Refusal, Request
from tests.support.sessions import MIB, hello

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def frame(sequence: int) -> Frame:
    return Frame(sequence, sequence, 0, 0, "forward", 0, (DeviceFrame("cuda:0", sequence * MIB, sequence * MIB),))


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *messages: object) -> None:
    size = int.from_bytes(await reader.readexactly(4), "big")
    request = codec.decode(await reader.readexactly(size))
    assert isinstance(request, Request)
    assert (request.name, request.protocol, request.history) == ("hello", PROTOCOL, True)
    for message in messages:
        writer.write(codec.encode(message))
    await writer.drain()


class Straw:
    """Serves each connection with the next of `talks`; the last one again and again."""

    def __init__(self, path: pathlib.Path, *talks: Talk) -> None:
        self.path, self.talks = path, list(talks)
        self.connections = 0
        self.silences: list[str] = []
        self.session = Session(1)
        self.alive = True
        self.path_given: Optional[pathlib.Path] = path

    def way(self) -> Optional[SocketWay]:
        return None if self.path_given is None else SocketWay(self.path_given)

    async def read(self, until: Callable[[Session], bool], seconds: float = 10.0) -> Session:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talk = self.talks.pop(0) if len(self.talks) > 1 else self.talks[0]
            self.connections += 1
            try:
                await talk(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_unix_server(serve, os.fspath(self.path))
        source = AgentReader(self.session, self.way, lambda: self.alive, self.session.apply, self.silences.append)
        task = asyncio.create_task(source.run())
        async with asyncio.timeout(seconds) if hasattr(asyncio, "timeout") else _Unlimited():
            while not until(self.session) and not task.done():
                await asyncio.sleep(0.01)
        task.cancel()
        server.close()
        return self.session


class _Unlimited:
    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *error: object) -> None: ...


def test_history_and_then_live(tmp_path: pathlib.Path) -> None:
    """The greeting, what was before, and what comes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer, hello(), Event("new_peak", 1, 0, "forward"), frame(1), frame(2))
        await asyncio.sleep(0.05)
        writer.write(codec.encode(frame(3))[:7])
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(codec.encode(frame(3))[7:])
        await asyncio.sleep(5)

    session = asyncio.run(Straw(tmp_path / "s", talk).read(lambda s: s.frame is not None and s.frame.sequence == 3))

    assert session.connection == "connected"
    series = session.series("cuda:0", "allocated_bytes")
    assert series is not None
    assert len(series) == 3


@pytest.mark.parametrize("junk", [b"\xff\xff\xff\xff", b"\0\0\0\2{}", b"\0\0\0\1x", b'\0\0\0\x0f{"kind":"frame"}'])
def test_a_broken_frame_drops_the_connection_and_not_the_viewer(tmp_path: pathlib.Path, junk: bytes) -> None:
    """It connects again, and what it has is kept."""

    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer, hello(), frame(1))
        writer.write(junk)
        await writer.drain()
        await asyncio.sleep(5)

    async def well(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer, hello(), frame(1), frame(2))
        await asyncio.sleep(5)

    straw = Straw(tmp_path / "s", broken, well)
    session = asyncio.run(straw.read(lambda s: s.frame is not None and s.frame.sequence == 2))

    assert straw.connections == 2
    assert session.connection == "connected"
    series = session.series("cuda:0", "allocated_bytes")
    assert series is not None
    assert len(series) == 2


def test_an_agent_of_another_version_is_refused_clearly(tmp_path: pathlib.Path) -> None:
    """Once, and not tried again; the line says who is newer and what to do."""

    async def newer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer, hello(protocol=PROTOCOL + 1, agent="9.0"))
        await asyncio.sleep(5)

    straw = Straw(tmp_path / "s", newer)
    session = asyncio.run(straw.read(lambda s: False))

    assert session.connection == "refused"
    assert "newer than this viewer (memtui 9.0, protocol 2; this one speaks 1): upgrade" in session.connection_text
    assert straw.connections == 1


def test_an_agent_that_refuses_gives_its_reason(tmp_path: pathlib.Path) -> None:
    """In its own words."""

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer, Refusal("too old"))
        await asyncio.sleep(5)

    session = asyncio.run(Straw(tmp_path / "s", refuses).read(lambda s: False))

    assert (session.connection, session.connection_text) == ("refused", "too old")


def test_it_waits_for_an_agent_that_is_not_there_yet(tmp_path: pathlib.Path) -> None:
    """The socket appears later, as after `memtui run`."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer, hello(), frame(1))
        await asyncio.sleep(5)

    straw = Straw(tmp_path / "s", talk)
    straw.path_given = None

    async def both() -> Session:
        asyncio.get_running_loop().call_later(0.5, lambda: setattr(straw, "path_given", straw.path))
        return await straw.read(lambda s: s.frame is not None)

    assert asyncio.run(both()).frame is not None


def test_after_the_last_word_it_stops(tmp_path: pathlib.Path) -> None:
    """The interpreter is going: nobody will answer again."""

    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer, hello(), frame(1), Bye(9, "RuntimeError", "why"))

    straw = Straw(tmp_path / "s", dies)
    session = asyncio.run(straw.read(lambda s: False))

    assert session.end is not None
    assert session.end.exception == "RuntimeError"
    assert straw.connections == 1


def test_what_is_no_socket_is_not_connected_to(tmp_path: pathlib.Path) -> None:
    """Nor what nobody listens on."""
    (tmp_path / "file").write_text("")
    with pytest.raises(AgentError, match="is not a socket"):
        probe(tmp_path / "file", 1)
    with pytest.raises(AgentError, match="no agent at"):
        probe(tmp_path / "nothing", 1)
