"""A machine at the other end of a link, as a place where processes run."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any, Optional

from memtui.inject.attach import Outcome
from memtui.session.readings import HostReading
from memtui.session.session import Session

from .agent_probe import AgentError
from .optimizer_trials import OptimizerTrials
from .remote_channel import Channel
from .remote_check import checked
from .remote_link import Link, Watched


class There:
    """Processes of one link."""

    def __init__(self, link: Link) -> None:
        self.link = link

    @property
    def trouble(self) -> str:
        """Since when the link is down, and why."""
        return self.link.down_text

    @property
    def cut_ns(self) -> int:
        """When the link went down last."""
        return self.link.cut_ns

    def process(self, pid: int) -> ProcessThere:
        """What the far end tells of it."""
        return ProcessThere(self.link, pid)

    def way(self, pid: int) -> Optional[ChannelWay]:
        """A stream of the link, where the far end has seen a socket."""
        watched = self.link.watched.get(pid)
        return ChannelWay(self.link, pid) if self.link.up and watched is not None and watched.agent else None

    def entry(self, pid: int, told: Callable[[str], None]) -> EntryThere:
        """Done by the far end."""
        return EntryThere(self.link, pid, told)


class ProcessThere:
    """The last reading of a process; while the link is down nobody knows better."""

    def __init__(self, link: Link, pid: int) -> None:
        self._link, self._pid = link, pid

    def read(self) -> HostReading:
        """Taken to be alive until it is said to be gone."""
        watched = self._link.watched.get(self._pid)
        if watched is None or watched.reading is None:
            return HostReading(time.monotonic_ns(), alive=True)
        return watched.reading


class ChannelWay:
    """To an agent at the far end."""

    def __init__(self, link: Link, pid: int) -> None:
        self._link, self._pid = link, pid
        self._channel: Optional[Channel] = None

    @property
    def silence(self) -> str:
        """As far as the link knows."""
        watched = self._link.watched.get(self._pid)
        if watched is not None and watched.reading is not None and watched.reading.stopped:
            return f"the agent does not answer: the process is stopped (T); kill -CONT {self._pid} lets it go on"
        return self._link.down_text or "the agent is silent: its process is in a long call that holds Python"

    @property
    def ended(self) -> str:
        """What the far end has said."""
        return "" if self._channel is None else self._channel.reason

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A pair of sockets, with the link behind one of them."""
        own, near = socket.socketpair()
        self._channel = self._link.adopt(near, self._pid)
        return await asyncio.open_unix_connection(sock=own)

    def dial(self) -> socket.socket:
        """The same from a thread; raises AgentError."""
        if not self._link.up:
            raise AgentError(self._link.down_text)
        own, near = socket.socketpair()
        self._link.adopt_from_thread(near, self._pid)
        return own

    def moved(self, message: Any) -> Any:
        """By the link's clock; raises CodecError."""
        return self._link.clock.moved(checked(message))


class EntryThere:
    """One attempt of the far end's; `told` hears what it is at."""

    def __init__(self, link: Link, pid: int, told: Callable[[str], None]) -> None:
        self._link, self._pid, self._told = link, pid, told
        self._watched: Optional[Watched] = None

    async def run(self) -> Outcome:
        """How it ended."""
        self._watched = self._link.watched.get(self._pid) or self._link.watch(self._pid, None)
        return await asyncio.shield(self._link.enter(self._watched, self._told))

    async def close(self) -> None:
        """Takes a queued call back; the far end does that too where the link ends."""
        if self._watched is not None:
            self._link.cancel_entry(self._watched)


class NoTrials(OptimizerTrials):
    """Optimizers of other machines are not tried: their classes are there."""

    def consider(self, session: Session) -> None:
        """Begins nothing."""
