"""The ranks and devices of one machine: found, read now and then, and told of when asked."""

from __future__ import annotations

import asyncio
import os
import pathlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Optional

from memtui.session.readings import DeviceReading, DriverReading
from memtui.sources.agent_probe import AgentError
from memtui.sources.driver_library import LIBRARY_VARIABLE
from memtui.sources.driver_poller import DriverPoller
from memtui.sources.environ import environment_of
from memtui.sources.relatives import ancestors
from memtui.sources.sockets import Found, all_sockets, find_socket
from memtui.sources.stale import remove_stale
from memtui.sources.virtual_driver import use_driver_of_process

from .families import MOST_EXPOSED, Own, Ranks, devices, own
from .guard import IMPOSSIBLE
from .life import life_of
from .rank import Rank
from .stream import AgentStream

#: What agents send in a second fits into their sockets several times.
_READ_SECONDS = 1.0
#: Every so many readings a folder is listed.
_LOOK_EVERY = 2
#: The driver is read that many times more rarely than for a screen.
_THRIFT = 5
_ENDED_NS = 300_000_000_000
#: A reading of the driver is taken every ten seconds at least.
_STALE_NS = 60_000_000_000
#: Ranks that are dealt with before scrapers and signals have a turn.
_AT_ONCE = 16
#: Why somebody is turned away; agents by what they said, scrapers by what they did.
REASONS = ("agent_garbage", "agent_version", "agent_owner", "auth", "busy", "request", "slow")
#: A socket without an agent of ours is left alone for so long, unless another takes its place.
_LEFT_ALONE_NS = 20_000_000_000
#: In the environment of a program that is only tried out.
_REHEARSAL = "MEMTUI_REHEARSAL"
#: A second scrape within so short a time gets what the first one got.
_FRESH_NS = 200_000_000


class Machine:
    """Owned by one event loop. `on_processes` hears which processes the driver lists, to look for new ones in it."""

    def __init__(self, on_processes: Optional[Callable[[set[int]], None]] = None) -> None:
        self.ranks: dict[int, Rank] = {}
        self.driver: Optional[DriverReading] = None
        self.refused: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._on_processes = on_processes
        self._poller = DriverPoller(lambda: 0, lambda: None, self._take_driver, thrift=_THRIFT)
        self._first_driver = asyncio.Event()
        self._library_given = LIBRARY_VARIABLE in os.environ
        self._virtual_since_ns: Optional[int] = None  # when the driver became that of virtual GPUs
        self._passes = 0
        self._left_alone: dict[pathlib.Path, tuple[int, int]] = {}  # which file, and since when
        self._left_out = 0
        self._may_be_stale = False  # a socket that nobody answers on
        self._families: tuple[int, list[Any]] = (-_FRESH_NS, [])
        self._telling: Optional[asyncio.Task[list[Any]]] = None

    @property
    def has_virtual_gpus(self) -> bool:
        """Whether the driver that is read, or is to be read next, is that of virtual GPUs."""
        return self._virtual_since_ns is not None

    async def first_look(self, seconds: float) -> None:
        """Waits until it is known what there is, but no longer."""
        self._poller.start()
        await self._read()
        try:
            await asyncio.wait_for(self._first_driver.wait(), seconds)
        except asyncio.TimeoutError:
            return

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            await asyncio.sleep(_READ_SECONDS)
            await self._read()

    def close(self) -> None:
        """Hangs up on all agents."""
        self._poller.stop()
        for rank in self.ranks.values():
            rank.close()

    def refuse(self, reason: str) -> None:
        """Counts a scraper that was turned away."""
        self.refused[reason] += 1

    async def families(self) -> list[Any]:
        """All metrics, of this instant or the last moment; a rank that says nothing is not waited for."""
        when, told = self._families
        if time.monotonic_ns() - when < _FRESH_NS:
            return told
        if self._telling is None or self._telling.done():
            self._telling = asyncio.ensure_future(self._tell())
        return await asyncio.shield(self._telling)

    async def _tell(self) -> list[Any]:
        found = Ranks()
        for number, rank in enumerate(list(self.ranks.values())):
            rank.read(time.monotonic_ns())
            if rank.launcher:
                continue
            try:
                rank.read_host(time.monotonic_ns())
                found.add(rank, time.monotonic_ns())
            except IMPOSSIBLE:
                rank.refuse("agent_garbage")
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        live = sum(not rank.over for rank in self.ranks.values())
        told = [
            *found.families(),
            *devices(self._readings(), self._held_then()),
            *own(Own(live, found.left_out + self._left_out, dict(self.refused))),
        ]
        self._families = time.monotonic_ns(), told
        return told

    def _readings(self) -> tuple[DeviceReading, ...]:
        """Of the devices, unless the driver does not answer any more."""
        reading = self.driver
        if reading is None or time.monotonic_ns() - reading.time_ns > _STALE_NS:
            return ()
        if self._virtual_since_ns is not None and not self._reads_here():
            return ()  # virtual GPUs are gone with the programs that had them
        return reading.devices

    def _held_then(self) -> list[int]:
        """Processes with an agent, with those that had not gone yet when the driver was read."""
        read_ns = 0 if self.driver is None else self.driver.time_ns
        return [rank.pid for rank in self.ranks.values() if rank.vanished_ns is None or rank.vanished_ns > read_ns]

    def _reads_here(self) -> bool:
        """Whether the driver that is read is that of a rank which goes on."""
        return any(rank.is_read_here and not rank.over for rank in self.ranks.values())

    # Reading

    async def _read(self) -> None:
        if self._passes % _LOOK_EVERY == 0:
            self._look()
            if self._may_be_stale:
                self._may_be_stale = False
                await asyncio.to_thread(remove_stale)
        for number, rank in enumerate(list(self.ranks.values())):
            while rank.read(time.monotonic_ns()):
                await asyncio.sleep(0)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            self._follow(rank)
        self._passes += 1

    def _follow(self, rank: Rank) -> None:
        if rank.trouble:
            self.refused[rank.trouble] += 1
            rank.trouble = ""
        if rank.session.driver is None and self.driver is not None:
            rank.take_driver(self.driver)
        over = rank.ended_ns is not None and time.monotonic_ns() - rank.ended_ns > _ENDED_NS
        if over or rank.unloaded:
            rank.close()
            if self.ranks.get(rank.pid) is rank:
                del self.ranks[rank.pid]

    # Finding

    def _look(self) -> None:
        found, self._left_out, now_ns = all_sockets("agent"), 0, time.monotonic_ns()
        for path, (_, since_ns) in list(self._left_alone.items()):
            if now_ns - since_ns > _LEFT_ALONE_NS:
                del self._left_alone[path]
        for pid in set(found) - self._watched():
            self._consider(pid, found[pid])
        self._tell_launchers()

    def _tell_launchers(self) -> None:
        """Those that are above a rank, and are none themselves."""
        for rank in self.ranks.values():
            for pid in rank.above if rank.rank else ():
                launcher = self.ranks.get(pid)
                if launcher is not None and not launcher.rank:
                    launcher.launcher = True

    def _watched(self) -> set[int]:
        return {pid for pid, rank in self.ranks.items() if not rank.over}

    def _consider(self, named: int, found: Found) -> None:
        """Begins to read an agent, if there is one: of a process that has ended the socket may be left."""
        try:
            file = os.lstat(found.path).st_ino
        except OSError:
            return
        known, _ = self._left_alone.get(found.path, (None, 0))
        if known == file:
            return
        if len(self._watched()) >= MOST_EXPOSED:
            self._left_out += 1
        elif _REHEARSAL in environment_of(named) or not self._add(found.path):
            self._left_alone[found.path] = file, time.monotonic_ns()
            self._may_be_stale = True

    def _add(self, path: pathlib.Path) -> bool:
        """False where there is nobody new."""
        try:
            stream = AgentStream(path)
        except AgentError:
            self.refused["agent_owner"] += 1
            return False
        except BlockingIOError:
            return True  # its process is stopped, or busy: perhaps the next time
        except OSError:
            return False
        pid = stream.pid  # 0 in another pid namespace, where it cannot be followed
        life = life_of(pid)
        before = self.ranks.get(pid)
        if life is None or life.over or (before is not None and before.life.started == life.started):
            stream.close()
            return False
        self.ranks[pid] = Rank(pid, path, stream, life, ancestors(pid))
        self._choose_driver()
        return True

    def _choose_driver(self) -> None:
        """Where the machine has no driver of its own, that of the virtual GPUs of a rank which goes on."""
        if self._library_given or self.driver is None:
            return
        if self._reads_here() if self._virtual_since_ns is not None else self.driver.devices:
            return
        for rank in self.ranks.values():
            if not rank.over and use_driver_of_process(rank.pid):
                self._virtual_since_ns = time.monotonic_ns()
                return

    def _take_driver(self, reading: DriverReading) -> None:
        if reading.time_ns < (self._virtual_since_ns or 0):
            return  # of what was read before
        self.driver = reading
        self._first_driver.set()
        for rank in self.ranks.values():
            rank.take_driver(reading)
        self._choose_driver()
        listed = {process.pid for device in reading.devices for process in device.others or ()}
        for pid in listed - self._watched():
            found = find_socket("agent", pid)
            if found is not None:
                self._consider(pid, found)
        if self._on_processes is not None:
            self._on_processes(listed - self._watched())
