"""A recorded session, as a monitor that can be moved through time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Callable, Optional

from memtui.session.readings import ShapeForecast
from memtui.session.session import Session
from memtui.wire.histories import HistoryNews

from .log_format import LogError
from .log_reader import LogReader, nothing_recorded, open_log


class Replay:
    """A log shown at one instant; `session` is another object after each `seek`."""

    replay = True
    program = None

    def __init__(self, path: str, foretell: Optional[Callable[[Session], Iterable[ShapeForecast]]] = None) -> None:
        """Checks that `path` is a log; raises LogError. Its content is read by `start`.

        What `foretell` makes of the whole of it is shown from the instant on that it is of.
        """
        with open_log(path) as file:
            if not file.readline().endswith(b"\n"):
                raise LogError(nothing_recorded(path))
        self.path = path
        self.session = Session()
        self.on_change: Optional[Callable[[], None]] = None
        self.start_ns = self.end_ns = 0
        self._cursor_ns = 0
        self._reader: Optional[LogReader] = None
        self._foretell, self._foretold = foretell, tuple[ShapeForecast, ...]()

    def now_ns(self) -> int:
        """The instant that is shown, on the recorded machine's monotonic clock."""
        return self._cursor_ns

    async def start(self) -> None:
        """Reads the log, in a thread; then shows its end. A log that cannot be read is told as a notice."""
        try:
            self._reader = await asyncio.to_thread(self._read)
        except LogError as error:
            self.session.notice("log", str(error))
        else:
            self.start_ns, self.end_ns = self._reader.start_ns, self._reader.end_ns
            self.seek(self.end_ns)
        self._changed()

    def _read(self) -> LogReader:
        reader = LogReader(self.path)
        self._foretold = () if self._foretell is None else tuple(self._foretell(reader.whole))
        return reader

    async def stop(self) -> None:
        """Closes the log."""
        if self._reader is not None:
            self._reader.close()

    def save_history(self, told: Callable[[HistoryNews], None]) -> Optional[str]:
        """There is no process to ask."""
        return "this is a recording: there is no process that could record a history"

    def request(self, name: str) -> bool:
        """Never: there is no agent in a recording."""
        return False

    def session_at(self, time_ns: int) -> Session:
        """The session as it was at `time_ns`, whatever is shown."""
        return self.session if self._reader is None else self._reader.session_at(time_ns)

    def seek(self, time_ns: int) -> None:
        """Shows the session as it was at `time_ns`, clamped to the log."""
        if self._reader is None:
            return
        self._cursor_ns = max(self.start_ns, min(time_ns, self.end_ns))
        self.session = self._reader.session_at(self._cursor_ns)
        for forecast in self._foretold:
            if forecast.time_ns <= self._cursor_ns:
                self.session.apply_shape(forecast)
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()
