"""The logs of several ranks, moved through time together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Callable, Optional

from memtui.session.members import SEVERAL, Member, newest
from memtui.session.readings import DeviceReading, DriverReading, OtherProcess, ShapeForecast
from memtui.session.session import Session
from memtui.wire.histories import HistoryNews

from .log_format import LogError
from .log_ranks import RankLog, number_logs
from .replay import Replay


class RanksReplay:
    """A recording of ranks: a feed of the one that is chosen, with the others beside."""

    replay = True
    program = None

    def __init__(
        self, logs: Sequence[RankLog], foretell: Optional[Callable[[Session], Iterable[ShapeForecast]]] = None
    ) -> None:
        """Checks that there are logs; raises LogError where none of them is one. One that cannot be read is left out,
        with a notice.
        """
        self.on_change: Optional[Callable[[], None]] = None
        self.start_ns = self.end_ns = 0
        self._cursor_ns = 0
        self.label = ""
        self._replays: list[tuple[Member, Replay]] = []
        self._logs: list[RankLog] = []  # of the replays
        self._missing: list[str] = []
        for log in logs:
            try:
                recording = Replay(log.path, foretell)
            except LogError as error:
                self._missing.append(str(error))
                continue
            self._replays.append((_member(log, recording), recording))
            self._logs.append(log)
        if not self._replays:
            raise LogError(self._missing[0] if self._missing else "the log names no ranks")
        self._chosen = self._replays[0]

    @property
    def members(self) -> list[Member]:
        """Those that had begun at the instant that is shown."""
        return [member for member, each in self._replays if each.start_ns <= self._cursor_ns]

    @property
    def several(self) -> bool:
        """Whether there are ranks to set side by side."""
        return len(newest(member for member, _ in self._replays)) > 1 and self.end_ns > 0

    @property
    def session(self) -> Session:
        """Of the rank that is chosen, at the instant that is shown."""
        return self._chosen[1].session

    @property
    def driver(self) -> Optional[DriverReading]:
        """What the driver said of all devices, put together from what each rank was told."""
        devices: dict[str, DeviceReading] = {}
        for member in newest(self.members):
            reading = member.session.driver
            for device in reading.devices if reading is not None and not member.over else ():
                own = OtherProcess(member.pid, device.process_bytes, "")
                others = (*(device.others or ()), *([own] if device.process_bytes is not None else []))
                devices.setdefault(device.uuid, replace(device, process_bytes=None, others=others))
        return DriverReading(self._cursor_ns, tuple(devices.values())) if devices else None

    def choose(self, member: Member) -> None:
        """Shows this one from now on."""
        self._chosen = next((each for each in self._replays if each[0] is member), self._chosen)
        self._changed()

    def now_ns(self) -> int:
        """The instant that is shown, on the recorded machine's monotonic clock."""
        return self._cursor_ns

    def request(self, name: str) -> bool:
        """Never: there is no agent in a recording."""
        return False

    def save_history(self, told: Callable[[HistoryNews], None]) -> Optional[str]:
        """There is no process to ask."""
        return self._chosen[1].save_history(told)

    async def start(self) -> None:
        """Reads the logs one after the other; then shows their end."""
        for _, recording in self._replays:
            await recording.start()
        read = [recording for _, recording in self._replays if recording.end_ns]
        self.start_ns = min((each.start_ns for each in read), default=0)
        self.end_ns = max((each.end_ns for each in read), default=0)
        for text in self._missing:
            self.session.notice("log", text)
        self.seek(self.end_ns)
        if number_logs([(member, log) for (member, _), log in zip(self._replays, self._logs)]):
            self.label = SEVERAL
            self._changed()

    async def stop(self) -> None:
        """Closes the logs."""
        for _, recording in self._replays:
            await recording.stop()

    def session_at(self, time_ns: int) -> Session:
        """The chosen one's session as it was at `time_ns`."""
        return self._chosen[1].session_at(time_ns)

    def seek(self, time_ns: int) -> None:
        """Shows every rank as it was at `time_ns`, clamped to the logs; one that had ended, at its end."""
        self._cursor_ns = max(self.start_ns, min(time_ns, self.end_ns))
        for _, recording in self._replays:
            recording.seek(self._cursor_ns)
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()


def _member(log: RankLog, recording: Replay) -> Member:
    return Member(log.pid, lambda: recording.session, rank=log.rank, life=log.life)
