"""Writing a session down while it happens."""

from __future__ import annotations

import json
import os
import time
from typing import Optional

from memtui.session.readings import DriverReading, HostReading, OptimizerTrial, ShapeForecast, SteadyStep
from memtui.session.session import End, Message, Session
from memtui.wire import codec
from memtui.wire.frames import Frame

from .log_format import FORMAT, VERSION, LogError, Plain, frame_line, reading_line
from .log_reader import is_log

_FLUSH_NS = 1_000_000_000
_KINDS: dict[type, str] = {
    DriverReading: "driver",
    HostReading: "host",
    OptimizerTrial: "optimizer_trial",
    SteadyStep: "steady_step",
    ShapeForecast: "shape_forecast",
}


class LogWriter:
    """One log file, replaced where it exists; flushed once a second, so that a killed viewer loses little."""

    def __init__(self, path: str, version: str) -> None:
        """Opens `path`; raises LogError."""
        if os.path.isfile(path) and os.path.getsize(path) and not is_log(path):
            raise LogError(f"{path} is there and is no log of this memtui: name another file")
        try:
            self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - open as long as the monitor
        except OSError as error:
            raise LogError(f"cannot write {path}: {error.strerror}") from None
        self.path, self.version = path, version
        self.trouble = ""  # why nothing more is written
        self._flushed_ns = 0
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        now = time.monotonic_ns()
        self._write(
            {
                "kind": "log",
                "time_ns": now,
                "wall_time": self._wall(now),
                "format": FORMAT,
                "version": VERSION,
                "written_by": f"memtui {version}",
            }
        )

    def message(self, message: Message, session: Session) -> None:
        """Writes what the agent said, after the session has taken it in."""
        if isinstance(message, Frame):
            self._write(frame_line(message, session, self._wall(message.time_ns)))
        else:
            plain = codec.to_json(message)
            self._write({"kind": plain["kind"], "time_ns": message.time_ns, **plain})

    def reading(self, reading: DriverReading | HostReading | OptimizerTrial | SteadyStep | ShapeForecast) -> None:
        """Writes a reading of the viewer's own."""
        self._write(reading_line(_KINDS[type(reading)], reading))

    def names_rank(self, file: str, pid: int, rank: Optional[int], life: int, side: Optional[Plain] = None) -> None:
        """Writes which file beside this one has the lines of a rank, and of which machine and training it is."""
        said = {} if rank is None else {"rank": rank}
        line = {"kind": "rank", "time_ns": time.monotonic_ns(), **said, "life": life, "pid": pid, "file": file}
        self._write({**line, **(side or {})})
        self._flush()

    def end(self, end: End) -> None:
        """Writes how the process ended."""
        self._write({**reading_line("end", end), "wall_time": self._wall(end.time_ns)})
        self._flush()

    def close(self) -> None:
        """Closes the file; nothing can be written afterwards."""
        if not self._file.closed:
            self._flush()
            try:
                self._file.close()
            except OSError as error:
                self._stop(error)

    def _wall(self, time_ns: int) -> float:
        return round((time_ns + self._offset_ns) / 1e9, 3)

    def _write(self, line: Plain) -> None:
        if self._file.closed:
            return
        try:
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        except OSError as error:
            self._stop(error)
            return
        now = time.monotonic_ns()
        if now - self._flushed_ns > _FLUSH_NS:
            self._flushed_ns = now
            self._flush()

    def _flush(self) -> None:
        if self._file.closed:
            return
        try:
            self._file.flush()
        except OSError as error:
            self._stop(error)

    def _stop(self, error: OSError) -> None:
        self.trouble = f"the log {self.path} ends here: {error.strerror or error}"
        descriptor: Optional[int] = None if self._file.closed else self._file.fileno()
        if descriptor is not None:
            # Closing the file would try to write the rest again.
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, descriptor)
            os.close(devnull)
            self._file.close()
