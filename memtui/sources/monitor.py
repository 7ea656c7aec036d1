"""A live process under observation: every source feeding one session."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Optional

from memtui.session.readings import DriverReading, OptimizerTrial, ShapeForecast, SteadyStep
from memtui.session.session import Session
from memtui.wire.frames import Event, Frame, Model
from memtui.wire.histories import HistoryNews

from .agent_socket import AgentReader
from .agent_way import Way
from .driver_poller import DriverPoller
from .history_saver import HistorySaver
from .log_writer import LogWriter
from .optimizer_trials import OptimizerTrials
from .place import Entering, Here, Place
from .program import ExitStatus, ProgramError
from .program_link import ProgramLink
from .relatives import choose_agent, other_agents, rank_of

_HOST_SECONDS, _SOON_SECONDS = 1.0, 0.05
#: What keeps an agent out for a while only, and how often it is tried again.
_PASSING, _AGAIN_SECONDS = frozenset(("stopped", "traced", "torch")), 2.0
#: For so long rank 0 may still appear after another rank has.
_RANKS_NS = 3_000_000_000
#: Without an agent by then, the process is told to be one without PyTorch.
_AGENT_PATIENCE_NS = 10_000_000_000


class Monitor:
    """Owns the sources of one process and its session; everything happens in one event loop.

    With `supervised` the process was started by `memtui run`: `program` is its terminal and its end, and the agent is
    looked for in it and in what it starts (a launcher's ranks). Otherwise the agent is that of `pid` itself; with
    `enter` it has none yet, and gets one. `analyst` says after each frame what was found out meanwhile, in little time.
    """

    replay = False

    def __init__(
        self,
        pid: int,
        *,
        supervised: bool = False,
        collect: bool = True,
        log: Optional[LogWriter] = None,
        label: str = "",
        enter: bool = False,
        driver: bool = True,
        trials: Callable[[Callable[[OptimizerTrial], None]], OptimizerTrials] = OptimizerTrials,
        analyst: Optional[Callable[[Session], Iterable[Event | SteadyStep | ShapeForecast]]] = None,
        place: Optional[Place] = None,
    ) -> None:
        self.pid = pid
        self.session = Session(pid)
        self.session.program = label
        self.program: Optional[ProgramLink] = ProgramLink(pid, self._program_ended) if supervised else None
        self.on_change: Optional[Callable[[], None]] = None  # called after each change; the consumer throttles
        self._collect = collect
        self._log = log
        self._place: Place = place or Here()
        self._host = self._place.process(pid)
        self._reads_driver = driver
        self._driver = DriverPoller(lambda: self.session.pid, self.uuids, self.take_driver)
        self._agent: Optional[AgentReader] = None
        self._reader: Optional[asyncio.Task[None]] = None
        self._host_task: Optional[asyncio.Task[None]] = None
        self._stopped: Optional[asyncio.Event] = None  # of the loop that runs the sources
        self._agent_pid: Optional[int] = None
        self.agent_silence = ""  # why the agent does not answer, if so
        self._first_rank_ns: Optional[int] = None
        self._begun_ns = time.monotonic_ns()
        self._heard_ns = 0  # when the agent said something last
        self._end_told = self._released = False
        self._entry: Optional[Entering] = self._place.entry(pid, self._hear_entry) if enter else None
        self._entering: Optional[asyncio.Task[None]] = None
        self._trials = trials(self._take_trial)
        self._analyst = analyst
        self._histories = HistorySaver()

    def now_ns(self) -> int:
        """The monitored machine's monotonic clock."""
        return time.monotonic_ns()

    async def start(self) -> None:
        """Starts the sources; returns at once but for the connection to the supervisor."""
        self._stopped = asyncio.Event()
        if self.program is not None:
            try:
                await self.program.open(collect=self._collect)
            except ProgramError as error:
                self.session.notice("program", str(error))
                self.program = None
        self._host_task = asyncio.create_task(self._watch_host())
        self._reader = asyncio.create_task(self._watch_agent())
        if self._entry is not None:
            self._hear_entry("the agent is getting in")
            self._entering = asyncio.create_task(self._enter(self._entry))
        if self._reads_driver:
            self._driver.start()
        self._changed()

    async def release(self) -> None:
        """Leaves what the program starts to others: from now on this is the program's terminal and its end alone."""
        self._driver.stop()
        self._released = True
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        before, self.session = self.session, Session(self.pid)
        self.session.program = before.program
        self._host, self._agent = self._place.process(self.pid), None

    async def stop(self) -> None:
        """Stops the sources and closes the log; the program goes on. An agent that has not got in yet does not."""
        self._driver.stop()
        self._histories.close()
        await self._trials.stop()
        if self._entry is not None:
            await self._entry.close()
        for task in (self._host_task, self._reader, self._entering):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self.program is not None:
            self.program.close()
        if self._log is not None:
            self._log.close()

    def request(self, name: str) -> bool:
        """Asks the agent for something ("record", "tensors", "segments"); False where there is no agent to ask."""
        return self._agent is not None and self._agent.request(name)

    def save_history(self, told: Callable[[HistoryNews], None]) -> Optional[str]:
        """Records the allocator's history of the next step into a new file here; why not, else None.

        `told` is called with each state, the last one "written" or "refused": see HistorySaver.
        """
        way = self._agent_way()
        if way is None:
            return self._place.trouble or "there is no agent to ask"
        return self._histories.save(way, self._agent_pid or self.pid, told)

    @property
    def log_trouble(self) -> str:
        """Why nothing more is written to the log, if so."""
        return "" if self._log is None else self._log.trouble

    async def ended(self) -> None:
        """Waits until the process is gone; after `start`."""
        assert self._stopped is not None
        await self._stopped.wait()

    # Sources

    async def _watch_agent(self) -> None:
        self._agent = AgentReader(
            self.session, self._agent_way, self._alive, self._take, self._hear_silence, self._absent
        )
        await self._agent.run()
        if self.program is None and not self._released and self.session.end is None:
            reading = self._host.read()  # sooner than the next look at the process
            if not reading.alive:
                await self._gone(reading.zombie)
        self._changed()

    def _absent(self, seen: bool) -> str:
        """Why there is no way to an agent."""
        if self._place.trouble:
            return self._place.trouble
        if seen:
            return "the agent's socket is gone"
        return "no PyTorch in this process so far" if self._entry is None else "no agent in this process so far"

    async def _enter(self, entry: Entering) -> None:
        while True:
            outcome = await entry.run()
            if outcome.status == "attached":
                self._hear_entry("")
                return
            self._hear_entry(f"{outcome.text}; shown is what the driver and the system see")
            if outcome.status != "refused" or outcome.refusals[0].kind not in _PASSING:
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    def _hear_entry(self, text: str) -> None:
        self.session.notice("entry", text)
        self._tell_missing_agent()
        self._changed()

    async def _watch_host(self) -> None:
        while True:
            reading = self._host.read()
            if reading.alive and reading.total_bytes is None:
                await asyncio.sleep(_SOON_SECONDS)  # another machine has not said anything yet
                continue
            self.session.apply_host(reading)
            if self._log is not None:
                self._log.reading(reading)
            if self.log_trouble:
                self.session.notice("log", self.log_trouble)
            if not reading.alive:
                await self._gone(reading.zombie)
                return
            self._tell_missing_agent()
            self._turn_to_training()
            self._changed()
            await asyncio.sleep(_HOST_SECONDS)

    async def _gone(self, zombie: bool) -> None:
        # The agent's last words and the supervisor's status are on their way.
        await asyncio.sleep(0.3)
        if self.session.pid != self.pid and self.program is not None and self.program.running:
            return  # a rank is gone, and what started it still runs
        # Of one that an agent was heard of it is known whether it said why; that it is not collected yet says nothing.
        unheard = zombie and self.program is None and self.session.hello is None
        self._finish("its parent has not collected it yet" if unheard else "")

    def _program_ended(self, status: Optional[ExitStatus], reason: str) -> None:
        if status is None:
            if reason:
                self.session.notice("program", reason)
            self._changed()
            return
        code = -status.signal if status.signal is not None else status.code
        # What the agent had to say of the end comes through another socket, perhaps a moment later.
        asyncio.get_running_loop().call_later(0.2, self._finish, "", code)

    def _finish(self, text: str = "", exit_status: Optional[int] = None) -> None:
        silent = self.program is None and self.session.end is None and self.session.hello is not None
        parted_ns = None if self._agent is None or not silent else self._agent.parted_ns
        # A connection ends with its process; that the process is gone is seen some time later.
        self.session.ended(parted_ns or time.monotonic_ns(), exit_status, text)
        if silent and self.session.end is not None:
            heard = self._heard_ns > self._place.cut_ns
            self.session.end = replace(self.session.end, silent=heard, unheard=not heard)
        if self._log is not None and self.session.end is not None and not self._end_told:
            self._log.end(self.session.end)
            self._end_told = self.session.end.exit_status is not None or self.program is None
        if self.log_trouble:
            self.session.notice("log", self.log_trouble)
        if self._stopped is not None:
            self._stopped.set()
        self._changed()

    def _take(self, message: Any, received_ns: int) -> None:
        self._heard_ns = received_ns
        if not self.session.apply(message, received_ns):
            return
        if self._log is not None:
            self._log.message(message, self.session)
        if self._agent_pid is not None and self.session.pid != self._agent_pid:
            self.session.pid = self._agent_pid
            self._host = self._place.process(self._agent_pid)
        if isinstance(message, Model):
            self._trials.consider(self.session)
        if self._analyst is not None and isinstance(message, Frame):
            for found in self._analyst(self.session):
                self._take_found(found, received_ns)
        self._changed()

    def _take_found(self, found: Event | SteadyStep | ShapeForecast, received_ns: int) -> None:
        if isinstance(found, (SteadyStep, ShapeForecast)):
            if isinstance(found, SteadyStep):
                self.session.apply_steady(found)
            else:
                self.session.apply_shape(found)
            if self._log is not None:
                self._log.reading(found)
        elif self.session.apply(found, received_ns) and self._log is not None:
            self._log.message(found, self.session)

    def _take_trial(self, trial: OptimizerTrial) -> None:
        self.session.apply_trial(trial)
        if self._log is not None:
            self._log.reading(trial)
        self._changed()

    def _hear_silence(self, text: str) -> None:
        self.agent_silence = text
        self._tell_missing_agent()
        self._changed()

    def _turn_to_training(self) -> None:
        """Watches another process of the program where the one that is watched only launches it."""
        frame = self.session.frame
        if self._released or self.program is None or self._agent_pid is None or frame is None or self._is_training():
            return
        others = other_agents(self.pid, self._agent_pid)
        if not others:
            return
        chosen = self._choose()
        if chosen is None:
            return  # rank 0 may still come
        target = chosen if chosen in others else others[0]
        before, self.session = self.session, Session(target)
        self.session.program, self.session.notices = before.program, before.notices
        self._agent_pid, self._host = target, self._place.process(target)
        if self._reader is not None:
            self._reader.cancel()
        self._reader = asyncio.create_task(self._watch_agent())

    def _is_training(self) -> bool:
        frame = self.session.frame
        used = [device for device in self.session.devices if device.kind != "host"]
        return bool(used or self.session.model or (frame is not None and frame.step))

    def take_driver(self, reading: DriverReading) -> None:
        """Takes in a reading of the driver, made for this process."""
        if not self._host.read().alive:
            return  # of a dead process the last figures stay
        self.session.apply_driver(reading)
        if self._log is not None:
            self._log.reading(reading)
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    # Questions of the sources

    def _agent_way(self) -> Optional[Way]:
        if self.program is None:
            self._agent_pid = self.pid
        elif self._agent_pid is None or not _exists(self._agent_pid):
            self._agent_pid = self._choose()
        return None if self._agent_pid is None else self._place.way(self._agent_pid)

    def _choose(self) -> Optional[int]:
        chosen = choose_agent(self.pid)
        if chosen is None or chosen == self.pid or rank_of(chosen) == 0:
            return chosen
        if self._first_rank_ns is None:
            self._first_rank_ns = time.monotonic_ns()
        return chosen if time.monotonic_ns() - self._first_rank_ns > _RANKS_NS else None

    def _alive(self) -> bool:
        if self.session.end is not None:
            return False
        if self.program is not None:
            return self.program.running
        return self._host.read().alive

    def uuids(self) -> Optional[tuple[str, ...]]:
        """The devices to ask the driver for; all of them where no agent says which are used."""
        hello = self.session.hello
        if hello is None:
            return None
        return tuple(device.uuid for device in hello.devices if device.uuid)

    def _tell_missing_agent(self) -> None:
        if self.session.hello is not None:
            self.session.notice("entry")
        told = self.session.hello is not None or self.session.connection == "refused" or self._released
        if told or "entry" in self.session.notices:
            self.session.notice("agent")
        elif self.agent_silence:
            self.session.notice("agent", self.agent_silence)
        elif time.monotonic_ns() - self._begun_ns > _AGENT_PATIENCE_NS:
            self.session.notice(
                "agent", "no PyTorch in this process so far: it is monitored as the driver and the system see it"
            )


def _exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
