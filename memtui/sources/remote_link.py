"""A link to another machine for as long as it is watched: made again after a break, with what was asked for."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from memtui.inject.attach import Outcome
from memtui.inject.preflight import Refusal
from memtui.inject.words import printable
from memtui.session.readings import DriverReading, HostReading
from memtui.wire.codec import CodecError
from memtui.wire.relaying import CLOSE, CREDIT, DATA, TOLD, LinkError, credit, read_told, told

from .log_format import LogError, read_driver, read_host
from .remote_channel import Channel
from .remote_clock import Clock
from .ssh_address import Address
from .ssh_connection import Connection, SshError

_PING_SECONDS, _SILENT_SECONDS, _PONG_SECONDS = 2.0, 20.0, 120.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_ANSWER_SECONDS = 12.0
_CHUNK = 1 << 16
#: Of what is to be sent so much waits for a link that does not take it.
_MOST_WAITING = 4 << 20
_MOST_FOUND = 4096

Root = Optional[int]


@dataclass
class Watched:
    """What the far end says of one process."""

    pid: int
    started: Optional[int]
    reading: Optional[HostReading] = None
    agent: bool = False
    entry: Optional[Callable[[str], None]] = None  # who hears how the agent gets in
    entered: Optional[asyncio.Future[Outcome]] = None


@dataclass(frozen=True)
class FoundThere:
    """A process that the far end has found; `job` is what it has in common with others of its training."""

    pid: int
    started: int
    rank: Optional[int] = None
    local_rank: Optional[int] = None
    agent: bool = False
    command: str = ""
    job: tuple[str, ...] = ()


@dataclass
class _Heard:
    """Who is told what comes."""

    found: Callable[[list[list[FoundThere]]], None] = lambda _found: None
    driver: Callable[[DriverReading, dict[int, Optional[int]]], None] = lambda _reading, _listed: None
    changed: Callable[[], None] = lambda: None


class Link:
    """In one event loop, from `start` on. `roots` are the processes whose ranks are looked for, None being all."""

    def __init__(self, connection: Connection, roots: list[Root]) -> None:
        self.address: Address = connection.address
        self.roots = roots
        self.facts = connection.facts
        self.heard = _Heard()
        self.clock = Clock()
        self.up = False
        self.down_since_s: Optional[float] = None  # Unix seconds
        self.cut_ns = 0  # when it went down last
        self.reason = ""  # why it is down
        self.watched: dict[int, Watched] = {}
        self._connection: Optional[Connection] = connection
        self._loop: asyncio.AbstractEventLoop
        self._channels: dict[int, Channel] = {}
        self._numbers = itertools.count(1 << 16)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pings: dict[int, int] = {}
        self._out = bytearray()
        self._writing = self._stopped = False
        self._given_up = False  # as somebody would have to type something
        self._abort = threading.Event()
        self._heard_s = self._pong_s = 0.0
        self._task: Optional[asyncio.Task[None]] = None

    @property
    def label(self) -> str:
        """The host, as it is shown."""
        return self.address.label

    @property
    def down_text(self) -> str:
        """That it is down, since when and why; nothing while it is up."""
        if self.up or self.down_since_s is None:
            return ""
        since = time.strftime("%H:%M:%S", time.localtime(self.down_since_s))
        then = "attach again" if self._given_up else "trying again"
        return f"no link to {self.label} since {since} ({self.reason}): {then}"

    def start(self) -> None:
        """Takes the connection over."""
        self._loop = asyncio.get_running_loop()
        assert self._connection is not None
        self._begin(self._connection)
        self._task = self._loop.create_task(self._keep())

    async def stop(self) -> None:
        """Hangs up, for good."""
        self._stopped = True
        self._abort.set()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        connection = self._connection
        self._let_go("")
        if connection is not None:
            await self._loop.run_in_executor(None, connection.close)

    # Up and down

    def _begin(self, connection: Connection) -> None:
        if connection.facts.get("boot") != self.facts.get("boot"):
            self.clock = Clock()  # started afresh: no instant of before is of use
        self.facts, self._connection = connection.facts, connection
        for ping in connection.pings:
            self.clock.sample(*ping)
        self.clock.settle()
        self.up, self.down_since_s, self.reason = True, None, ""
        self._heard_s = self._pong_s = time.monotonic()
        self._out.clear()
        self._pings.clear()
        os.set_blocking(connection.source, False)
        os.set_blocking(connection.sink, False)
        self._loop.add_reader(connection.source, self._read)
        self._send(told(do="find", roots=self.roots, search=True))
        for watched in self.watched.values():
            self._send(told(do="watch", pid=watched.pid, started=watched.started))
            if watched.entered is not None and not watched.entered.done():
                self._send(told(do="enter", pid=watched.pid))
        self.heard.changed()

    def _let_go(self, reason: str) -> None:
        """The connection is of no use any more."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._loop.remove_reader(connection.source)
        self._loop.remove_writer(connection.sink)
        self._writing = False
        if self.up:
            self.up, self.down_since_s, self.cut_ns = False, time.time(), time.monotonic_ns()
        self.reason = printable(reason)
        for channel in list(self._channels.values()):
            channel.end(self.down_text)
        self._channels.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.cancel()
        self._answers.clear()

    def _drop(self, reason: str) -> None:
        connection = self._connection
        if connection is None or self._stopped:
            return
        self._let_go(reason)
        self._loop.run_in_executor(None, self._close, connection)
        self.heard.changed()

    def _close(self, connection: Connection) -> None:
        connection.close()
        words = connection.words.last()
        if words and not self.up:
            self.reason = printable(words)

    async def _keep(self) -> None:
        """Pings, and connects again after a break."""
        pause = _FIRST_PAUSE
        while not self._stopped:
            if self._connection is not None:
                await asyncio.sleep(_PING_SECONDS)
                self._ping()
                pause = _FIRST_PAUSE
                continue
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                connection = await self._again()
            except SshError as error:
                self.reason = str(error).removeprefix(f"{self.label}: ")
                self._given_up = error.final
                self.heard.changed()
                if error.final:
                    return
            else:
                self._begin(connection)

    async def _again(self) -> Connection:
        """Another connection, made on a thread that nobody has to wait for; raises SshError."""
        made: asyncio.Future[Connection] = self._loop.create_future()

        def work() -> None:
            try:
                connection = Connection(self.address, batch=True, abort=self._abort)
            except SshError as error:
                self._from_thread(functools.partial(_fail, made, error))
                return
            if not self._from_thread(functools.partial(_succeed, made, connection)):
                connection.close()

        threading.Thread(target=work, name="memtui-ssh", daemon=True).start()
        return await made

    def _from_thread(self, call: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            return False  # the loop has ended meanwhile
        return True

    def _ping(self) -> None:
        now = time.monotonic()
        if now - self._heard_s > _SILENT_SECONDS or now - self._pong_s > _PONG_SECONDS:
            self._drop(f"nothing was heard for {now - min(self._heard_s, self._pong_s):.0f} s")
            return
        number = next(self._numbers)
        self._pings[number] = time.monotonic_ns()
        self._send(told(do="ping", number=number))

    # Bytes

    def _read(self) -> None:
        connection = self._connection
        assert connection is not None
        try:
            data = os.read(connection.source, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop("the connection was closed")
            return
        self._heard_s = time.monotonic()
        try:
            for kind, number, payload in connection.unpacked(data):
                self._take(kind, number, payload)
                if self._connection is not connection:
                    return
        except (LinkError, CodecError, LogError, ValueError, TypeError, KeyError, OverflowError) as error:
            self._drop(f"it sent {error}: dropped")
            return
        self._send(credit(0, len(data)))

    def _send(self, data: bytes) -> None:
        if self._connection is None:
            return
        self._out += data
        if len(self._out) > _MOST_WAITING:
            self._drop("it takes nothing")
            return
        self._write()

    def _write(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            while self._out:
                del self._out[: os.write(connection.sink, self._out[:_CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # its end is read, too
        if bool(self._out) != self._writing:
            self._writing = bool(self._out)
            if self._writing:
                self._loop.add_writer(connection.sink, self._write)
            else:
                self._loop.remove_writer(connection.sink)

    # Frames

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == TOLD:
            self._hear(read_told(payload))
            return
        channel = self._channels.get(number)
        if channel is None or kind == CREDIT:
            return
        if kind == DATA:
            channel.take(payload)
        elif kind == CLOSE:
            del self._channels[number]
            channel.end(printable(payload[:2000].decode(errors="replace")))

    def _hear(self, plain: dict[str, Any]) -> None:
        what = plain.get("is")
        if what == "pong":
            sent = self._pings.pop(_number(plain.get("number")), None)
            if sent is not None:
                self._pong_s = time.monotonic()
                self.clock.sample(sent, _number(plain.get("time_ns")), time.monotonic_ns())
        elif what == "process":
            self._hear_process(plain)
        elif what == "driver":
            reading = self.clock.moved_driver(read_driver(plain["reading"]))
            listed = {int(key): _optional(value) for key, value in dict(plain["listed"]).items()}
            self.heard.driver(reading, listed)
        elif what == "found":
            self.heard.found([[found_there(each) for each in found[:_MOST_FOUND]] for found in plain["found"]])
        elif what in ("entry", "entered"):
            self._hear_entry(plain)
        elif what == "answer":
            answer = self._answers.pop(_number(plain.get("number")), None)
            if answer is not None and not answer.done():
                answer.set_result(plain)

    def _hear_process(self, plain: dict[str, Any]) -> None:
        watched = self.watched.get(_number(plain.get("pid")))
        if watched is not None:
            watched.reading = self.clock.moved_reading(read_host(plain["reading"]))
            watched.agent = plain.get("agent") is True
            self.heard.changed()

    def _hear_entry(self, plain: dict[str, Any]) -> None:
        watched = self.watched.get(_number(plain.get("pid")))
        if watched is None:
            return
        text = printable(str(plain.get("text", "")))
        if plain["is"] == "entry":
            if watched.entry is not None:
                watched.entry(text)
            return
        status, kind = printable(str(plain.get("status", "failed"))), printable(str(plain.get("refusal", "")))
        refusals = (Refusal(kind, text, ""),) if kind else ()
        outcome = Outcome(
            status,
            watched.pid,
            text,
            printable(str(plain.get("way", ""))) or None,
            already=plain.get("already") is True,
            paused_ns=_optional(plain.get("paused_ns")),
            refusals=refusals,
        )
        if watched.entered is not None and not watched.entered.done():
            watched.entered.set_result(outcome)

    # Asked from here

    def watch(self, pid: int, started: Optional[int]) -> Watched:
        """Has a process looked at from now on."""
        if pid not in self.watched or self.watched[pid].started != started:
            self.watched[pid] = Watched(pid, started)
            self._send(told(do="watch", pid=pid, started=started))
        return self.watched[pid]

    def enter(self, watched: Watched, hear: Callable[[str], None]) -> asyncio.Future[Outcome]:
        """Has the agent get into a process; begun again after a break of the link."""
        watched.entry, watched.entered = hear, self._loop.create_future()
        self._send(told(do="enter", pid=watched.pid))
        return watched.entered

    def cancel_entry(self, watched: Watched) -> None:
        """Takes a queued call back."""
        if watched.entered is not None and not watched.entered.done():
            self._send(told(do="cancel", pid=watched.pid))

    def adopt(self, near: socket.socket, pid: int) -> Channel:
        """Lets a socket talk to the agent of a process there."""
        number = next(self._numbers)
        channel = Channel(number, near, self._send)
        if self._connection is None:
            channel.end(self.down_text)
            return channel
        self._channels[number] = channel
        self._send(told(do="open", number=number, pid=pid))
        return channel

    def adopt_from_thread(self, near: socket.socket, pid: int) -> None:
        """The same, from another thread."""
        self._loop.call_soon_threadsafe(self.adopt, near, pid)

    async def ask(self, **fields: Any) -> dict[str, Any]:
        """The answer to a question; raises SshError where none comes."""
        number = next(self._numbers)
        answer = self._answers[number] = self._loop.create_future()
        self._send(told(number=number, **fields))
        try:
            return await asyncio.wait_for(answer, _ANSWER_SECONDS)
        except (asyncio.TimeoutError, asyncio.CancelledError):
            raise SshError(self.down_text or f"{self.label} does not answer") from None
        finally:
            self._answers.pop(number, None)


def found_there(plain: Any) -> FoundThere:
    """What the far end says of a process; raises LinkError."""
    if type(plain) is not dict or type(plain.get("job", [])) is not list:
        raise LinkError("a process that is none")
    return FoundThere(
        _number(plain.get("pid")),
        _number(plain.get("started")),
        _optional(plain.get("rank")),
        _optional(plain.get("local_rank")),
        plain.get("agent") is True,
        printable(str(plain.get("command", ""))),
        tuple(str(each)[:200] for each in plain.get("job", [])[:8]),
    )


def _number(value: Any) -> int:
    if type(value) is not int or abs(value) >> 62:
        raise LinkError("a number that is none")
    return value


def _optional(value: Any) -> Optional[int]:
    return None if value is None else _number(value)


def _fail(made: asyncio.Future[Connection], error: SshError) -> None:
    if not made.done():
        made.set_exception(error)


def _succeed(made: asyncio.Future[Connection], connection: Connection) -> None:
    if made.done():  # nobody waits any more
        connection.close()
    else:
        made.set_result(connection)
