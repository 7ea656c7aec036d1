"""The reader of an agent's socket: connects, checks who answers, decodes, and comes back after a break."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Optional

from memtui.session.session import Session
from memtui.wire import codec
from memtui.wire.frames import PROTOCOL, Hello, Refusal, Request

from .agent_probe import AgentError, AgentRefused, check_greeting, reason_of
from .agent_way import Way

_GREETING_SECONDS = 10.0
#: An agent answers within a tenth of a second; after so long its silence is told.
_SILENT_SECONDS = 0.6
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_CHUNK = 1 << 18


class AgentReader:
    """Feeds a session from the agent of one process, for as long as `alive` says that it lives."""

    def __init__(
        self,
        session: Session,
        way: Callable[[], Optional[Way]],
        alive: Callable[[], bool],
        received: Callable[[Any, int], None],
        silent: Callable[[str], None],
        absent: Callable[[bool], str] = lambda seen: (
            "the agent's socket is gone" if seen else "no PyTorch in this process so far"
        ),
    ) -> None:
        """`silent` is told why an agent does not answer, or an empty text once it does; `absent` says what there is
        where there is no way to one: whether it was seen before is what it is given.
        """
        self._absent = absent
        self._session, self._way, self._alive, self._received = session, way, alive, received
        self._silent = silent
        self._writer: Optional[asyncio.StreamWriter] = None
        self.parted_ns: Optional[int] = None  # when the last connection ended: with the process, as a rule

    def request(self, name: str) -> bool:
        """Asks the agent for something; False where there is none to ask."""
        if self._writer is None:
            return False
        self._writer.write(codec.encode(Request(name)))
        return True

    async def run(self) -> None:
        """Reads until the process is gone or refuses; each break is told to the session and tried again."""
        pause = _FIRST_PAUSE
        while True:
            before = self._session.hello
            try:
                text = await self._read_once() or "the agent closed the connection; the process lives"
            except AgentRefused as error:
                self._session.set_connection("refused", str(error))
                return
            except (AgentError, codec.CodecError, OSError) as error:
                text = reason_of(error)
            if not self._alive() or self._session.end is not None:
                return
            self._session.set_connection("lost" if self._session.hello is not None else "none", text)
            # Where there was no socket, looking for one costs next to nothing, and the first seconds matter.
            fresh = self._session.hello is not before or self._way() is None
            pause = 2 * _FIRST_PAUSE if fresh else min(2 * pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _read_once(self) -> str:
        """Why the connection has ended, where that is known."""
        way = self._way()
        if way is None:
            raise AgentError(self._absent(self._session.hello is not None))
        reader, writer = await way.open()
        try:
            writer.write(codec.encode(Request("hello", PROTOCOL, history=True)))
            splitter = codec.Splitter()
            greeted = False
            while True:
                data = await (reader.read(_CHUNK) if greeted else self._first_words(reader, way))
                if not data:
                    return way.ended
                now = time.monotonic_ns()
                for body in splitter.feed(data):
                    self._take(way.moved(codec.decode(body)), greeted, now)
                    greeted, self._writer = True, writer
        except asyncio.TimeoutError:
            raise AgentError(way.silence) from None
        finally:
            self._writer, self.parted_ns = None, time.monotonic_ns()
            writer.close()

    async def _first_words(self, reader: asyncio.StreamReader, way: Way) -> bytes:
        waiting = asyncio.ensure_future(reader.read(_CHUNK))
        try:
            await asyncio.wait([waiting], timeout=_SILENT_SECONDS)
            if not waiting.done():
                self._silent(way.silence)
            data = await asyncio.wait_for(waiting, _GREETING_SECONDS)
            self._silent("")
            return data
        finally:
            waiting.cancel()

    def _take(self, message: object, greeted: bool, now_ns: int) -> None:
        if not greeted or isinstance(message, Refusal):
            check_greeting(message)
        if isinstance(message, Hello):
            self._session.set_connection("connected")
        self._received(message, now_ns)
