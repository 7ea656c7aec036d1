"""Reading a log: its lines in order of time, and a session at any instant of it."""

from __future__ import annotations

import bisect
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Optional

from memtui.session.session import Session

from .log_format import (
    FORMAT,
    VERSION,
    LogError,
    read_driver,
    read_end,
    read_frame,
    read_host,
    read_message,
    read_shape,
    read_steady,
    read_trial,
)

_TIME = re.compile(rb'\{"kind":"([a-z_]+)","time_ns":(\d+)')
_FIRST_LINE_BYTES = 4096
SECOND_NS = 1_000_000_000
#: Lines between two copies of the session: going back costs at most so many lines again.
_CHECKPOINT_LINES = 1000


def open_log(path: str) -> BinaryIO:
    """The file, if it is a log of a version this program knows; raises LogError."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise LogError(f"{path} is no file that can be read more than once: save the log first")
    try:
        file = open(path, "rb")  # noqa: SIM115 - the reader keeps it
        first = file.readline(_FIRST_LINE_BYTES)
    except OSError as error:
        raise LogError(f"cannot read {path}: {error.strerror}") from None
    try:
        head = json.loads(first)
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        file.close()
        raise LogError(f"{path} is not a memtui log (they are written by --log)")
    if head.get("version") != VERSION:
        file.close()
        raise LogError(
            f"{path} is a log of version {head.get('version')}, by {head.get('written_by', 'another memtui')}: "
            f"this memtui reads version {VERSION}"
        )
    return file


def nothing_recorded(path: str) -> str:
    """What is said of a log that ends after its first line."""
    return f"{path} holds no figures: nothing was recorded"


class LogReader:
    """A log by time. Reading it all takes some 50 µs a line; `session_at` some tens of milliseconds."""

    def __init__(self, path: str, after_frame: Optional[Callable[[Session], None]] = None) -> None:
        """Opens and indexes `path`, and calls `after_frame` with the session after each frame; raises LogError."""
        self._file = open_log(path)
        self._after_frame = after_frame
        self.broken_lines = 0
        self._cut_off = False
        # Lines were written as they came; a history that an agent sent late is older than what was read meanwhile.
        index = sorted(self._scan())
        self._times = [time_ns for time_ns, _ in index]
        self._offsets = [offset for _, offset in index]
        self._frames = [time_ns for time_ns in self._times if time_ns]
        if not self._frames:
            raise LogError(nothing_recorded(path))
        self._checkpoints: list[tuple[int, Session]] = []  # (lines applied, the session then)
        self.whole = Session()
        self._load()

    @property
    def start_ns(self) -> int:
        """The first instant of the log."""
        return self._frames[0]

    @property
    def end_ns(self) -> int:
        """The last instant of the log."""
        return self._frames[-1]

    @property
    def wall_offset_ns(self) -> int:
        """Wall clock less monotonic: the agent's word, else that of the log's first line; 0 where it has none."""
        if self.whole.hello is not None:
            return self.whole.hello.wall_offset_ns
        self._file.seek(0)
        head = json.loads(self._file.readline())
        times = head.get("wall_time"), head.get("time_ns")
        return int(1e9 * times[0]) - times[1] if all(isinstance(each, (int, float)) for each in times) else 0

    @property
    def trouble(self) -> str:
        """How many lines were skipped, in words; empty where none was."""
        if not self.broken_lines:
            return ""
        lines = "1 line" if self.broken_lines == 1 else f"{self.broken_lines:,} lines"
        return f"{lines} of the log cannot be read" + ("; the last one is cut off" if self._cut_off else "")

    def session_at(self, time_ns: int) -> Session:
        """The session as it was at `time_ns`; its series are those of the whole log."""
        count = bisect.bisect_right(self._times, time_ns)
        if count == len(self._times):
            return self.whole
        place = bisect.bisect_right([applied for applied, _ in self._checkpoints], count) - 1
        applied, checkpoint = self._checkpoints[place]
        session = checkpoint.snapshot()
        for line in range(applied, count):
            self._apply(session, line)
        return session

    def each_second(self) -> Iterator[tuple[Session, int]]:
        """The session at the end of each second of the log; the same object, which goes on."""
        session = Session()
        due = self.start_ns + SECOND_NS
        for line, time_ns in enumerate(self._times):
            while time_ns > due:
                yield session, due
                due += SECOND_NS
            self._apply(session, line)

    def moments(self, times: Iterable[int]) -> Iterator[Session]:
        """The session at each of `times`, which rise; the same object, which goes on."""
        session, line = Session(), 0
        for time_ns in times:
            while line < len(self._times) and self._times[line] <= time_ns:
                self._apply(session, line)
                line += 1
            yield session

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _scan(self) -> list[tuple[int, int]]:
        found = []
        offset = self._file.tell()
        greeted = False
        for line in self._file:
            match = _TIME.match(line)
            if not line.endswith(b"\n"):
                self._cut_off = True  # when the viewer was killed
                self.broken_lines += 1
                break
            if match is None:
                self.broken_lines += 1
            else:
                # What says who the program is counts from the beginning on, whenever it was said.
                first = match[1] == b"hello" and not greeted
                greeted = greeted or first
                found.append((0 if first else int(match[2]), offset))
            offset += len(line)
        return found

    def _load(self) -> None:
        for line in range(len(self._times)):
            if line % _CHECKPOINT_LINES == 0:
                self._checkpoints.append((line, self.whole.snapshot()))
            self._apply(self.whole, line)
        if self.trouble:
            for session in (self.whole, *(checkpoint for _, checkpoint in self._checkpoints)):
                session.notice("log", self.trouble)

    def _apply(self, session: Session, line: int) -> None:
        self._file.seek(self._offsets[line])
        try:
            plain = json.loads(self._file.readline())
            apply_line(session, plain)
        except (ValueError, LogError):
            self.broken_lines += session is self.whole
            return
        if self._after_frame is not None and session is self.whole and plain["kind"] == "frame":
            self._after_frame(session)


def apply_line(session: Session, plain: Any) -> None:
    """Gives a line of a log to a session; raises LogError. A kind that is not known is a newer memtui's: ignored."""
    if not isinstance(plain, dict):
        raise LogError("not an object")
    kind = str(plain.get("kind"))
    if kind == "frame":
        frame = read_frame(plain)
        session.apply(frame, frame.time_ns)
    elif kind in {"hello", "model", "event", "recorded_step", "backward_graph", "tensors", "segments", "bye"}:
        message = read_message(plain)
        session.apply(message, message.time_ns)
    elif kind == "driver":
        session.apply_driver(read_driver(plain))
    elif kind == "host":
        session.apply_host(read_host(plain))
    elif kind == "optimizer_trial":
        session.apply_trial(read_trial(plain))
    elif kind == "steady_step":
        session.apply_steady(read_steady(plain))
    elif kind == "shape_forecast":
        session.apply_shape(read_shape(plain))
    elif kind == "end":
        session.end = read_end(plain)
        session.revision += 1


def is_log(path: str) -> bool:
    """Whether `path` begins like a log."""
    if not os.path.isfile(path):
        return False
    try:
        open_log(path).close()
    except LogError:
        return False
    return True
