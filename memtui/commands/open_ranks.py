"""`memtui open` of a log that names those of several ranks: a line a second for all of them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from memtui.session.members import SEVERAL, Member
from memtui.session.session import Session
from memtui.sources.log_format import LogError
from memtui.sources.log_ranks import RankLog, number_logs
from memtui.sources.log_reader import SECOND_NS, LogReader

from .headless_ranks import RankLines
from .ownline import OwnLines


def print_ranks(logs: Sequence[RankLog], options: argparse.Namespace) -> int:
    """Lines as they were printed when it was recorded; raises LogError where no log can be read."""
    readers: list[tuple[RankLog, LogReader]] = []
    trouble = []
    for log in logs:
        try:
            readers.append((log, LogReader(log.path)))
        except LogError as error:
            trouble.append(str(error))
    trouble += [reader.trouble for _, reader in readers if reader.trouble]
    if not readers:
        raise LogError(trouble[0])
    for text in trouble:
        print(f"memtui: {text}", file=sys.stderr)
    lines = OwnLines(None if options.quiet else sys.stdout)
    begin = min(reader.start_ns for _, reader in readers)
    end = max(reader.end_ns for _, reader in readers)
    times = [*range(begin + SECOND_NS, end, SECOND_NS), end]
    if options.frames is not None:
        times = times[: options.frames]
    recorded = _Recorded(readers)
    said = RankLines(recorded)
    moments = [reader.moments(times) for _, reader in readers]
    for time_ns in times:
        recorded.take([next(each) for each in moments], time_ns)
        if len(recorded.members) > 1:
            clock = time.strftime("%H:%M:%S", time.localtime((time_ns + readers[0][1].wall_offset_ns) / 1e9))
            said.say(lines, clock, prefix="")
    if options.frames is None:
        said.farewell(lines, prefix="")
    for _, reader in readers:
        reader.close()
    return 0


class _Recorded:
    """What lines are made of, at one instant of the logs."""

    driver = None
    several = True

    def __init__(self, readers: Sequence[tuple[RankLog, LogReader]]) -> None:
        self._readers = readers
        self._sessions = [reader.whole for _, reader in readers]
        self._members = [self._member(place, log) for place, (log, _) in enumerate(readers)]
        apart = number_logs([(member, log) for member, (log, _) in zip(self._members, readers)])
        self.label = SEVERAL if apart else ""
        self._now_ns = 0

    def _member(self, place: int, log: RankLog) -> Member:
        return Member(log.pid, lambda: self._sessions[place], rank=log.rank, life=log.life)

    def take(self, sessions: list[Session], now_ns: int) -> None:
        """The sessions as they were then."""
        self._sessions, self._now_ns = sessions, now_ns

    @property
    def members(self) -> list[Member]:
        """Those that had begun."""
        begun = [reader.start_ns <= self._now_ns for _, reader in self._readers]
        return [member for member, there in zip(self._members, begun) if there]

    def now_ns(self) -> int:
        """The instant."""
        return self._now_ns
