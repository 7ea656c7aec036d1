"""Processes of several machines side by side: ranks of one training, or whatever else is watched together."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Optional

from memtui.session.members import SEVERAL, Member, first_failed, newest, number_apart, number_lives
from memtui.session.readings import DriverReading
from memtui.session.session import Session
from memtui.wire.histories import HistoryNews

from .driver_poller import DriverPoller
from .driver_shared import Find, reading_for
from .finding import found_below
from .log_format import LogError
from .log_ranks import Side, log_of_rank
from .log_writer import LogWriter
from .monitor import Monitor
from .place import Here, Place
from .remote_link import FoundThere, Link, Root, found_there
from .remote_place import NoTrials, There
from .ssh_connection import SshError
from .trials_shared import SharedTrials

_LOOK_SECONDS = 1.0
_MOST_MEMBERS = 4096
MakeAnalyst = Callable[[Optional[int]], Callable[[Session], Iterable[Any]]]


@dataclass
class Spot:
    """A machine of which something is watched; without a link it is this one."""

    roots: list[Root]
    link: Optional[Link] = None
    driver: Optional[DriverReading] = None
    members: dict[tuple[int, int], Member] = field(default_factory=dict)  # by pid and when it was started

    @property
    def label(self) -> str:
        """As it is shown."""
        return "" if self.link is None else self.link.label

    @property
    def place(self) -> Place:
        """Where its processes run."""
        return Here() if self.link is None else There(self.link)


class Gathered:
    """A feed of the process that is chosen, and of all of them; everything happens in one event loop.

    With `whole_log` there is one process, and the log is its own. With `unload` the agents go when this stops.
    """

    replay = False
    program = None
    launcher: Optional[Session] = None
    elsewhere = True  # at least one is on another machine

    def __init__(
        self,
        spots: list[Spot],
        *,
        analyst: Optional[MakeAnalyst] = None,
        log: Optional[LogWriter] = None,
        whole_log: bool = False,
        unload: bool = False,
    ) -> None:
        self.members: list[Member] = []
        self.on_change: Optional[Callable[[], None]] = None
        self.partings: list[str] = []  # what went wrong when agents were taken out
        self._spots, self._analyst, self._log = spots, analyst, log
        self._whole_log, self._unload = whole_log, unload
        self._monitors: dict[int, Monitor] = {}  # by id of the member
        self._jobs: dict[int, frozenset[str]] = {}
        self._adding: set[asyncio.Task[None]] = set()
        self._chosen: Optional[Member] = None
        self._none = Session()
        self._names: set[str] = set()
        self._trials = SharedTrials()
        self._poller = DriverPoller(lambda: 0, self._uuids_here, self._take_here)
        self._looking: Optional[asyncio.Task[None]] = None
        self._some: Optional[asyncio.Event] = None

    # A feed

    @property
    def several(self) -> bool:
        """Whether there is anything to set side by side."""
        return len(newest(self.members)) > 1

    @property
    def shown(self) -> Optional[Monitor]:
        """The monitor of the one that is chosen."""
        chosen = self._chosen or next(iter(newest(self.members) or self.members), None)
        return None if chosen is None else self._monitors[id(chosen)]

    @property
    def session(self) -> Session:
        """What is known of the one that is chosen."""
        shown = self.shown
        return self._none if shown is None else shown.session

    @property
    def driver(self) -> Optional[DriverReading]:
        """What the drivers of all machines said last."""
        readings = [spot.driver for spot in self._spots if spot.driver is not None]
        if not readings:
            return None
        devices = tuple(device for reading in readings for device in reading.devices)
        return replace(readings[0], time_ns=max(reading.time_ns for reading in readings), devices=devices)

    @property
    def label(self) -> str:
        """Of one training its own words say it."""
        return "" if all(member.number is None for member in self.members) else SEVERAL

    @property
    def agent_silence(self) -> str:
        """Why the agent of the shown one does not answer, if so."""
        shown = self.shown
        return "" if shown is None else shown.agent_silence

    @property
    def log_trouble(self) -> str:
        """Why nothing more is written to a log, if so."""
        return next((each.log_trouble for each in self._monitors.values() if each.log_trouble), "")

    def now_ns(self) -> int:
        """This machine's monotonic clock, to which all instants are moved."""
        return time.monotonic_ns()

    def request(self, name: str) -> bool:
        """Asks the agent of the shown one for something; False where there is none to ask."""
        shown = self.shown
        return shown is not None and shown.request(name)

    def save_history(self, told: Callable[[HistoryNews], None]) -> Optional[str]:
        """Saves the history of the shown one's next step here; why not, else None."""
        shown = self.shown
        return "nothing is watched yet" if shown is None else shown.save_history(told)

    def choose(self, member: Member) -> None:
        """Shows this one from now on."""
        self._chosen = member
        self._changed()

    @property
    def telling(self) -> Session:
        """The session that says best how it ended."""
        failed = first_failed(newest(self.members)) or first_failed(self.members)
        return self.session if failed is None else failed.session

    async def start(self) -> None:
        """Starts the sources."""
        self._some = asyncio.Event()
        for spot in self._spots:
            if spot.link is None:
                self._poller.start()
                continue
            spot.link.heard.found = partial(self._take_found, spot)
            spot.link.heard.driver = partial(self._take_driver_there, spot)
            spot.link.heard.changed = self._changed
            spot.link.start()
        self._looking = asyncio.create_task(self._look_again())

    async def stop(self) -> None:
        """Stops the sources; the processes go on."""
        self._poller.stop()
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        for task in self._adding:
            task.cancel()
        if self._unload:
            await self._take_out()
        for monitor in self._monitors.values():
            await monitor.stop()
        for spot in self._spots:
            if spot.link is not None:
                await spot.link.stop()
        if self._log is not None:
            self._log.close()

    async def ended(self) -> None:
        """Waits until every process that was seen is gone; after `start`."""
        assert self._some is not None
        await self._some.wait()
        while True:
            living = [each for each in self.members if not each.over]
            if not living and self.members:
                return
            await asyncio.gather(*(self._monitors[id(each)].ended() for each in living))
            await asyncio.sleep(_LOOK_SECONDS)  # a restart brings others

    async def _take_out(self) -> None:
        for spot in self._spots:
            for member in list(spot.members.values()):
                if spot.link is None or member.over:
                    continue
                try:
                    answer = await spot.link.ask(do="unload", pid=member.pid)
                except SshError as error:
                    self.partings.append(str(error))
                    continue
                text = str(answer.get("text", ""))
                if not text and answer.get("done") is not True:
                    text = f"process {member.pid} is busy or stopped, and the agent goes once it goes on"
                if text:
                    self.partings.append(f"{spot.label}: {text}")

    # Finding

    async def _look_again(self) -> None:
        """Of this machine; the others look by themselves."""
        while True:
            for spot in self._spots:
                if spot.link is None:
                    found = [found_below(root, search=True, on_devices=()) for root in spot.roots if root is not None]
                    self._take_found(spot, [[found_there(each) for each in some] for some in found])
            await asyncio.sleep(_LOOK_SECONDS)

    def _take_found(self, spot: Spot, found: list[list[FoundThere]]) -> None:
        for each in itertools.chain.from_iterable(found):
            key = each.pid, each.started
            if key not in spot.members and len(self.members) < _MOST_MEMBERS:
                self._add(spot, each)
        for root, some in zip(spot.roots, found):
            if root is not None and some and all(each.pid != root for each in some):
                self._give_up(spot, root)
        self._arrange()
        self._changed()

    def _give_up(self, spot: Spot, pid: int) -> None:
        """A launcher that was watched until its ranks came."""
        for key in [key for key in spot.members if key[0] == pid]:
            member = spot.members.pop(key)
            self.members.remove(member)
            self._keep(self._monitors.pop(id(member)).stop())

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._adding.add(task)
        task.add_done_callback(self._adding.discard)

    def _add(self, spot: Spot, found: FoundThere) -> None:
        if spot.link is not None:
            spot.link.watch(found.pid, found.started).agent = found.agent
        # What is local to a machine is told apart by the machine.
        apart = [each if each.startswith("at ") else f"{spot.label} {each}" for each in found.job]
        job = frozenset(apart or [f"{spot.label} process {found.pid} {found.started}"])
        monitor = Monitor(
            found.pid,
            collect=False,
            log=self._log_of(spot, found, job),
            enter=not found.agent,
            driver=False,
            trials=self._trials.of_rank if spot.link is None else NoTrials,
            analyst=None if self._analyst is None else self._analyst(found.rank),
            place=spot.place,
        )
        monitor.session.program = found.command
        member = Member(
            found.pid,
            lambda: monitor.session,
            rank=found.rank,
            local_rank=found.local_rank,
            host=spot.label,
        )
        spot.members[found.pid, found.started] = member
        self.members.append(member)
        self._monitors[id(member)] = monitor
        self._jobs[id(member)] = job
        monitor.on_change = self._changed
        self._keep(monitor.start())
        if self._some is not None:
            self._some.set()

    def _log_of(self, spot: Spot, found: FoundThere, job: frozenset[str]) -> Optional[LogWriter]:
        if self._log is None or self._whole_log:
            log, self._log = self._log, None  # of the first alone
            return log
        life = 1 + sum(each.rank == found.rank for each in self.members if found.rank is not None)
        side = Side(spot.label, self._spots.index(spot), job)
        try:
            return log_of_rank(self._log, found.pid, found.rank, life, side, self._names)
        except LogError:
            return None

    def _arrange(self) -> None:
        """Ranks of one training keep their numbers; where there is more than one training rows are counted."""
        # In the order in which they were asked for, whichever machine answered first.
        of_spot = {id(member): place for place, spot in enumerate(self._spots) for member in spot.members.values()}
        ordered = sorted(self.members, key=lambda each: of_spot.get(id(each), 0))
        if not number_apart([(member, self._jobs[id(member)]) for member in ordered]):
            number_lives(self.members)

    # The drivers

    def _take_driver(self, spot: Spot, reading: DriverReading, find: Optional[Find] = None) -> None:
        spot.driver = reading
        for member in spot.members.values():
            if member.over:
                continue
            monitor = self._monitors[id(member)]
            found = (member.pid, monitor.uuids())
            monitor.take_driver(reading_for(reading, *found) if find is None else reading_for(reading, *found, find))

    def _take_driver_there(self, spot: Spot, reading: DriverReading, listed: dict[int, Optional[int]]) -> None:
        self._take_driver(spot, reading, lambda _pids, pid: listed.get(pid))

    def _take_here(self, reading: DriverReading) -> None:
        for spot in self._spots:
            if spot.link is None:
                self._take_driver(spot, reading)

    def _uuids_here(self) -> Optional[tuple[str, ...]]:
        return None

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()
