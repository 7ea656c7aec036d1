"""Where a process runs, for who watches it: this machine, or another one (`remote_place`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional, Protocol

from memtui.inject.attach import Outcome
from memtui.session.readings import HostReading

from .agent_probe import find_agent
from .agent_way import SocketWay, Way
from .entry import Entry
from .host import HostSource


class ProcessSource(Protocol):
    """Reads one process."""

    def read(self) -> HostReading:
        """What the system says of it now, or said last."""


class Entering(Protocol):
    """One attempt to get the agent in."""

    async def run(self) -> Outcome:
        """How it ended."""

    async def close(self) -> None:
        """Takes a queued call back."""


class Place(Protocol):
    """A machine."""

    @property
    def trouble(self) -> str:
        """Why nothing is heard from there, if so."""

    @property
    def cut_ns(self) -> int:
        """When it could not be heard any more the last time (monotonic); 0 where it always could."""

    def process(self, pid: int) -> ProcessSource:
        """The source of a process."""

    def way(self, pid: int) -> Optional[Way]:
        """The way to a process's agent; None where there is none."""

    def entry(self, pid: int, told: Callable[[str], None]) -> Entering:
        """An attempt to get the agent into a process."""


class Here:
    """This machine."""

    trouble = ""
    cut_ns = 0

    def process(self, pid: int) -> HostSource:
        """By psutil."""
        return HostSource(pid)

    def way(self, pid: int) -> Optional[Way]:
        """By its socket."""
        path = find_agent(pid)
        return None if path is None else SocketWay(path)

    def entry(self, pid: int, told: Callable[[str], None]) -> Entry:
        """On a thread."""
        return Entry(pid, told)
