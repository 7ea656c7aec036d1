"""A program and the ranks that it starts: each watched by a monitor of its own, and one of them shown at a time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, Optional

from memtui.session.members import Member, first_failed, newest, number_lives
from memtui.session.readings import DriverReading, ShapeForecast, SteadyStep
from memtui.session.session import Session
from memtui.wire.frames import Event
from memtui.wire.histories import HistoryNews

from .driver_poller import DriverPoller
from .driver_shared import reading_for
from .launched import Launched, with_agents, without_agents
from .log_format import LogError
from .log_ranks import log_of_rank
from .log_writer import LogWriter
from .monitor import Monitor
from .program_link import ProgramLink
from .trials_shared import SharedTrials

#: Looking for new ranks costs a list of a folder; looking for those without an agent, one of all processes.
_LOOK_SECONDS, _SEARCH_EVERY = 0.5, 4

#: By rank; None where that is not known yet.
MakeAnalyst = Callable[[Optional[int]], Callable[[Session], Iterable[Any]]]
Found = Iterable["Event | SteadyStep | ShapeForecast"]


class Ranks:
    """A feed of the rank that is chosen; until a second one is there, of what `lead` has found by itself.

    `lead` is the monitor of the program that was started or attached to: its terminal and its end stay with it. With
    `search` ranks that have no agent get one. Everything happens in one event loop.
    """

    replay = False

    def __init__(
        self,
        lead: Monitor,
        *,
        search: bool = False,
        analyst: Optional[MakeAnalyst] = None,
        log: Optional[LogWriter] = None,
    ) -> None:
        self.lead = lead
        self.members: list[Member] = []  # in the order in which they came, earlier lives too
        self.driver: Optional[DriverReading] = None  # of all their devices, as read for none of them
        self.on_change: Optional[Callable[[], None]] = None
        self._monitors: dict[int, Monitor] = {}  # by id of the member
        self._known: dict[int, int] = {}  # when each pid that was looked at began
        self._search, self._analyst, self._log = search, analyst, log
        self._trials = SharedTrials()
        self._poller = DriverPoller(self._any_pid, self._uuids, self._take_driver)
        self._looking: Optional[asyncio.Task[None]] = None
        self._looks = 0
        self._chosen: Optional[Member] = None
        self._released = False
        lead.on_change = self._changed

    # A feed

    @property
    def several(self) -> bool:
        """Whether two ranks have been seen: from then on they are shown side by side."""
        return self._released and len(newest(self.members)) > 1

    @property
    def session(self) -> Session:
        """What is known of the rank that is chosen; else of what `lead` watches."""
        return self.shown.session

    @property
    def shown(self) -> Monitor:
        """The monitor of the rank that is chosen."""
        if not self._released:
            return self.lead
        chosen = self._chosen or next(iter(newest(self.members)), None)
        return self.lead if chosen is None else self._monitors[id(chosen)]

    @property
    def program(self) -> Optional[ProgramLink]:
        """The program itself, where it was started by `memtui run`."""
        return self.lead.program

    @property
    def label(self) -> str:
        """What was started, or is attached to: the launcher and its script."""
        host = self.lead.session.host
        return self.lead.session.program or ("" if host is None else " ".join(host.cmdline))

    @property
    def launcher(self) -> Optional[Session]:
        """What is known of what started the ranks."""
        return self.lead.session

    @property
    def agent_silence(self) -> str:
        """Why the agent of the shown one does not answer, if so."""
        return self.shown.agent_silence

    @property
    def log_trouble(self) -> str:
        """Why nothing more is written to a log, if so."""
        monitors = (self.lead, *self._monitors.values())
        return next((monitor.log_trouble for monitor in monitors if monitor.log_trouble), "")

    def now_ns(self) -> int:
        """The monitored machine's monotonic clock."""
        return time.monotonic_ns()

    def request(self, name: str) -> bool:
        """Asks the agent of the shown one for something; False where there is none to ask."""
        return self.shown.request(name)

    def save_history(self, told: Callable[[HistoryNews], None]) -> Optional[str]:
        """Saves the history of the shown one's next step; why not, else None."""
        return self.shown.save_history(told)

    def choose(self, member: Member) -> None:
        """Shows this one from now on."""
        self._chosen = member
        self._changed()

    def requests(self, member: Member, name: str) -> bool:
        """Asks the agent of one member."""
        return self._monitors[id(member)].request(name)

    async def start(self) -> None:
        """Starts the sources."""
        await self.lead.start()
        self._poller.start()
        self._looking = asyncio.create_task(self._look_again())

    async def stop(self) -> None:
        """Stops the sources; the program goes on."""
        self._poller.stop()
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        for monitor in self._monitors.values():
            await monitor.stop()
        await self.lead.stop()

    async def ended(self) -> None:
        """Waits until the program is gone, and each rank that was seen; after `start`."""
        await self.lead.ended()
        if self._released:
            # What ranks had to say of their end comes through sockets of their own, perhaps a moment later.
            endings = [monitor.ended() for monitor in self._monitors.values()]
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.gather(*endings), 1.5)

    @property
    def telling(self) -> Session:
        """The session that says best how it ended: of the rank that failed first, in an earlier life too; else the
        shown one.
        """
        failed = first_failed(newest(self.members)) or first_failed(self.members)
        return self.session if failed is None else failed.session

    # Finding ranks

    async def _look_again(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> None:
        found = [(each, False) for each in with_agents(self.lead.pid)]
        if self._search and self._looks % _SEARCH_EVERY == 0:
            found += [(each, True) for each in without_agents(self.lead.pid, self._on_devices())]
        self._looks += 1
        new = [(each, enter) for each, enter in found if self._known.get(each.pid) != each.started]
        hello = self.lead.session.hello
        leads = hello is not None and hello.rank is not None and hello.pid == self.lead.pid  # as Lightning's launcher
        if not self.members and len(new) + leads < (1 if self._search and not leads else 2):
            return  # one process: its monitor is there already
        for each, enter in new:
            self._known[each.pid] = each.started
            await self._add(each, enter=enter)
        if leads and hello is not None and self.lead.pid not in self._known and not self._released:
            self._known[self.lead.pid] = 0
            await self._add(Launched(self.lead.pid, 0, hello.rank, hello.local_rank), enter=False)
        number_lives(self.members)
        if not self._released and len(newest(self.members)) > (0 if self._search else 1):
            self._released = True
            await self.lead.release()
            self._changed()

    async def _add(self, launched: Launched, *, enter: bool) -> None:
        life = 1 + sum(each.rank == launched.rank for each in self.members if launched.rank is not None)
        log = self._log_of(launched, life)
        monitor = Monitor(
            launched.pid,
            collect=False,
            log=log,
            enter=enter,
            driver=False,
            trials=self._trials.of_rank,
            analyst=None if self._analyst is None else self._analyst(launched.rank),
        )
        member = Member(
            launched.pid,
            lambda: monitor.session,
            rank=launched.rank,
            local_rank=launched.local_rank,
            life=life,
        )
        self.members.append(member)
        self._monitors[id(member)] = monitor
        monitor.on_change = self._changed
        await monitor.start()

    def _log_of(self, launched: Launched, life: int) -> Optional[LogWriter]:
        if self._log is None:
            return None
        try:
            return log_of_rank(self._log, launched.pid, launched.rank, life)
        except LogError as error:
            self.lead.session.notice("log", str(error))
            return None

    # The driver

    def _any_pid(self) -> Optional[int]:
        return 0 if self.members or self._search else None

    def _uuids(self) -> Optional[tuple[str, ...]]:
        told = [self._monitors[id(each)].uuids() for each in newest(self.members) if not each.over]
        known = [uuids for uuids in told if uuids is not None]
        if len(known) < len(told) or not told:
            return None
        return tuple(dict.fromkeys(uuid for uuids in known for uuid in uuids))

    def _take_driver(self, reading: DriverReading) -> None:
        self.driver = reading
        for member in newest(self.members):
            if not member.over:
                monitor = self._monitors[id(member)]
                monitor.take_driver(reading_for(reading, member.pid, monitor.uuids()))

    def _on_devices(self) -> set[int]:
        devices = () if self.driver is None else self.driver.devices
        return {process.pid for device in devices for process in device.others or ()}

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()
