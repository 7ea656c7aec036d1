"""Asks a server on a thread of its own, and tells the event loop what it heard."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Callable, Optional

from .client import Client, Track
from .collect import Collector, Key, Look, key_of
from .errors import Interrupted, PrometheusError
from .fleet import Fleet, fleet_of
from .history import MOST_MOMENTS, RankHistory, rank_tracks
from .moments import Moment, devices_of, moments_of
from .selector import Selector, one_of

#: Between two looks at a server that is scraped more often than this.
PERIOD_S = 2.0
#: Of the time, looking takes at most this share.
SHARE = 0.25
#: A key that is held down moves through time: only where it stops is looked at.
_SETTLE_S = 0.15
#: The longest pause between two tries at a server that does not answer.
_PATIENCE_S = 15.0


@dataclass(frozen=True)
class Wanted:
    """What the screen needs. `at_s` is an instant of the past; None is now."""

    at_s: Optional[float] = None
    shown: tuple[Key, ...] = ()  # in view: with their categories, and charts of `span_s`
    span_s: float = 600.0
    opened: Optional[Key] = None  # whose history is wanted, from `start_s` on
    start_s: float = 0.0
    end_s: float = 0.0  # until then where an instant of the past is shown


@dataclass(frozen=True)
class Heard:
    """What came of one round. `trouble` says why there is nothing else."""

    wanted: Wanted
    fleet: Optional[Fleet] = None
    tracks: dict[Key, list[tuple[float, float]]] = field(default_factory=dict)
    history: Optional[RankHistory] = None  # a new one
    moments: tuple[Moment, ...] = ()  # that go on with the one that is known
    trouble: str = ""


class Watcher:
    """Looks again and again until it is stopped; `tell` is called on its thread."""

    def __init__(self, client: Client, selector: Selector, tell: Callable[[Heard], None], wanted: Wanted) -> None:
        self._client, self._selector, self._tell = client, selector, tell
        self._collector = Collector(client, selector)
        self._wanted, self._wake = wanted, threading.Event()
        self._stopped = threading.Event()
        self._history: Optional[tuple[Key, float, float]] = None  # whose is known, from when to when
        self._thread = threading.Thread(target=self._go_on, name="memtui-prometheus", daemon=True)

    def first(self) -> Heard:
        """One round, at once and on this thread; raises PrometheusError."""
        return self._round(self._wanted)

    def runs(self) -> list[str]:
        """All runs that there are now, on this thread; raises PrometheusError."""
        return self._collector.runs()

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def want(self, wanted: Wanted) -> None:
        """From now on this; looks at once where that is not what was looked at."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._wake.set()

    def stop(self) -> None:
        """Ends, whatever is under way."""
        self._stopped.set()
        self._wake.set()
        self._client.close()

    def _go_on(self) -> None:
        failed = 0
        while not self._stopped.is_set():
            begun = time.monotonic()
            wanted = self._wanted
            try:
                heard, failed = self._round(wanted), 0
            except Interrupted:
                return
            except PrometheusError as error:
                heard, failed = Heard(wanted, trouble=str(error)), failed + 1
            if self._stopped.is_set():
                return
            self._tell(heard)
            self._pause(time.monotonic() - begun, failed, live=wanted.at_s is None)

    def _pause(self, took_s: float, failed: int, *, live: bool) -> None:
        period = max(PERIOD_S, self._collector.interval_s, took_s / SHARE)
        left = max(0.1, period - took_s)
        if failed:
            left = min(_PATIENCE_S, PERIOD_S * 2 ** min(failed - 1, 4))
        elif not live:
            left = math.inf
        # A session that waits for ever cannot be ended by a signal on some systems.
        if self._wake.wait(min(left, 3600.0)):
            while not self._stopped.is_set():
                self._wake.clear()
                if not self._wake.wait(_SETTLE_S):
                    break

    def _round(self, wanted: Wanted) -> Heard:
        look = self._collector.look(wanted.at_s, wanted.shown)
        fleet = fleet_of(look)
        tracks = self._charts(wanted, look.time_s) if wanted.shown else {}
        heard = Heard(wanted, fleet, tracks)
        return heard if wanted.opened is None else self._with_history(heard, wanted.opened, look)

    def _charts(self, wanted: Wanted, now_s: float) -> dict[Key, list[tuple[float, float]]]:
        """What those in view have allocated over time."""
        keys = wanted.shown
        matchers = one_of("rank", {key.rank for key in keys}), one_of("pid", {key.pid for key in keys})
        step = max(1.0, self._collector.interval_s, wanted.span_s / 90)
        asked = self._selector.of_ranks("memtui_allocated_bytes", *matchers)
        found: dict[Key, list[tuple[float, float]]] = {}
        for labels, points in self._client.query_range(asked, now_s - wanted.span_s, now_s, step):
            key = key_of(labels)
            # Of several devices the one that holds most.
            if key not in found or sum(value for _, value in points) > sum(value for _, value in found[key]):
                found[key] = points
        return found

    def _with_history(self, heard: Heard, key: Key, look: Look) -> Heard:
        wanted, info = heard.wanted, devices_of(look, key)
        uuids = {each.get("device", ""): each.get("device_uuid", "") for each in info}
        start_s, end_s = wanted.start_s, look.time_s if wanted.at_s is None else wanted.end_s
        before = self._history
        if before is not None and before[0] == key and before[1] == start_s and wanted.at_s is None:
            step = max(1.0, self._collector.interval_s)
            tracks = self._tracks(key, uuids, before[2] - step, end_s, step)
            self._history = key, start_s, end_s
            return replace(heard, moments=tuple(moments_of(tracks, uuids, _sequence(end_s))))
        if before is not None and before[:2] == (key, start_s) and before[2] >= end_s:
            return heard
        step = max(1.0, self._collector.interval_s, (end_s - start_s) / MOST_MOMENTS)
        tracks = self._tracks(key, uuids, start_s, end_s, step)
        self._history = key, start_s, end_s
        return replace(heard, history=RankHistory(key, info, moments_of(tracks, uuids)))

    def _tracks(self, key: Key, uuids: dict[str, str], start_s: float, end_s: float, step_s: float) -> Sequence[Track]:
        return rank_tracks(self._client, key, uuids.values(), start_s, end_s, step_s)


def _sequence(end_s: float) -> int:
    """A number for the next frames of a session, higher than those of all before."""
    return int(end_s * 1000)
