"""One rank's past and present as a session, which can be had as of any instant of it."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence

from memtui.session.session import SERIES_KEYS, Session

from .client import Client, Track
from .collect import AGENTS, Key
from .moments import Moment, hello_of
from .selector import Selector, equal, one_of

#: Scrapes that are asked for at most: more than a chart has columns for.
MOST_MOMENTS = 900
#: A copy of the session is kept after so many moments.
_APART = 24
_LOOKED_AT = 256
#: What there is not.
NOTE = "no tensors, segments or recorded steps, and no texts of events"


class RankHistory:
    """What a server holds of one rank between two instants."""

    def __init__(self, key: Key, info: Sequence[Mapping[str, str]], moments: Iterable[Moment]) -> None:
        self.key = key
        hello = hello_of(key, info, {})
        self.whole = Session(hello.pid)
        self.whole.apply(hello, 0)
        self.whole.set_connection("connected")
        self.whole.notice("prometheus", f"from Prometheus: {NOTE}")
        self._moments: list[Moment] = []
        self._times: list[int] = []
        self._marks = [(0, self.whole.snapshot())]  # how many moments are in each copy
        if not self.add(moments):
            self.whole.set_connection("none", "Prometheus has no figures of it from this time")

    def add(self, moments: Iterable[Moment]) -> bool:
        """Goes on with these; True where any of them is new."""
        before = len(self._moments)
        for moment in moments:
            if self._times and moment.time_ns <= self._times[-1]:
                continue
            moment.tell(self.whole)
            self._moments.append(moment)
            self._times.append(moment.time_ns)
            if len(self._moments) % _APART == 0:
                self._marks.append((len(self._moments), self.whole.snapshot()))
        if len(self._moments) == before:
            return False
        self._tell_distance()
        return True

    def _tell_distance(self) -> None:
        """How far most of the newest moments are apart."""
        times = self._times[-_LOOKED_AT:]
        gaps = sorted(after - before for before, after in zip(times, times[1:]))
        apart_ns = gaps[len(gaps) * 3 // 4] if gaps else 0
        for device in self.whole.devices:
            for key in SERIES_KEYS:
                series = self.whole.series(device.device, key)
                if series is not None:
                    series.apart_ns = apart_ns

    @property
    def count(self) -> int:
        """How many moments there are."""
        return len(self._moments)

    @property
    def last_s(self) -> float:
        """The newest moment, in Unix time; 0 where there is none."""
        return self._times[-1] / 1e9 if self._times else 0.0

    def session_at(self, time_ns: int) -> Session:
        """The session as it was then; its series are those of the whole time."""
        wanted = bisect.bisect_right(self._times, time_ns)
        if wanted == len(self._moments):
            return self.whole
        place = bisect.bisect_right([count for count, _ in self._marks], wanted) - 1
        begun, copied = self._marks[place]
        session = copied.snapshot()
        for moment in self._moments[begun:wanted]:
            moment.tell(session)
        return session


def rank_tracks(
    client: Client, key: Key, uuids: Iterable[str], start_s: float, end_s: float, step_s: float
) -> list[Track]:
    """All series of a rank and of its devices over a time; raises PrometheusError."""
    target = equal("job", key.job), equal("instance", key.instance)
    own = (equal("run", key.run), equal("rank", key.rank), equal("pid", key.pid), *target)
    found = client.query_range(Selector().of_ranks("~memtui_.*", *own), start_s, end_s, step_s)
    known = sorted(uuid for uuid in uuids if uuid)
    if known:
        asked = Selector().of_ranks("~memtui_device_.*", one_of("device_uuid", known), *target)
        found += client.query_range(asked, start_s, end_s, step_s)
        held = Selector().of_ranks("memtui_process_device_bytes", one_of("device_uuid", known), *target)
        for labels, points in client.query_range(f"sum by (device_uuid) ({held})", start_s, end_s, step_s):
            found.append(Track({**labels, "__name__": f"memtui_device_{AGENTS}"}, points))
    return found
