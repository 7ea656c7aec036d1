"""What a server would know of a simulated fleet at one instant, without one; and a feed that stands there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

from memtui.prometheus.address import parse_address
from memtui.prometheus.client import Client
from memtui.prometheus.collect import GAUGES, DeviceLook, Key, Look, Place, RankLook, Target
from memtui.prometheus.feed import FleetFeed
from memtui.prometheus.fleet import fleet_of
from memtui.prometheus.selector import Selector
from memtui.prometheus.watcher import Heard, Wanted
from tests.support.fleet import RUN, Fleet
from tests.support.fleet_ranks import CAPACITY_BYTES, Planted, Rank

#: 2026-03-01 12:00:00 UTC
NOW = 1_772_366_400.0


def simulated(ranks: int, hosts: int, stages: int = 4, *, planted: Optional[Planted] = None) -> Fleet:
    """A fleet that began half an hour before NOW; a planted silent rank fell silent 42 s before."""
    planted = Planted.usual(ranks, stages) if planted is None else planted
    return Fleet(ranks, hosts, stages=stages, planted=planted, begun=NOW - 1_800, silent_at=NOW - 42)


def look_of(fleet: Fleet, now: float = NOW, *, gone: Iterable[int] = (), run: str = RUN, age_s: float = 2.0) -> Look:
    """All of it at an instant, scraped so long before; hosts that are `gone` are not scraped any more."""
    away = set(gone)
    ranks: dict[Key, RankLook] = {}
    info: dict[Key, dict[str, str]] = {}
    targets: dict[Place, Target] = {}
    devices: dict[tuple[str, str, str], dict[str, float]] = {}
    for number, (host, members) in enumerate(zip(fleet.hosts, fleet.ranks)):
        instance = host.target.labels["instance"]
        targets[Place("memtui", instance)] = Target(number not in away, now - age_s)
        for rank in members:
            key = Key(run, str(rank.rank), str(rank.pid), "memtui", instance)
            info[key] = {**host._info(rank), "run": run, "job": "memtui", "instance": instance}
            if number not in away:
                ranks[key], driver = _rank(rank, now - age_s)
                devices["memtui", instance, rank.uuid] = driver
    return Look(now, ranks, info, targets, devices, 0.1, 5.0)


def _rank(rank: Rank, now: float) -> tuple[RankLook, dict[str, float]]:
    figures = rank.figures(now)
    known = {name: figures[name] for name in (*GAUGES, "last_step_seconds", "forward_seconds") if name in figures}
    split = {name.partition("|")[2]: int(value) for name, value in figures.items() if name.startswith("category_")}
    found = RankLook({f"cuda:{rank.local}": DeviceLook(rank.uuid, known, split, split)})
    for name, attribute in (("phase", "phase"), ("state", "state"), ("ends_total", "outcome")):
        true = [key.partition("|")[2] for key, value in figures.items() if key.startswith(f"{name}|") and value == 1]
        setattr(found, attribute, true[0] if true else "")
    used = figures["process_device_bytes"]
    driver = {"total_bytes": CAPACITY_BYTES, "used_bytes": used, "free_bytes": CAPACITY_BYTES - used, "other_bytes": 0}
    return found, driver


class StandingFeed(FleetFeed):
    """A feed of one look, that asks nobody."""

    def __init__(self, look: Look) -> None:
        super().__init__(Client(parse_address("http://127.0.0.1:9")), Selector())
        self._first_s = NOW - 7_200
        self._take(Heard(Wanted(), fleet_of(look)))

    @property
    def age_s(self) -> float:
        return 0.0 if self.fleet is None else self.fleet.age_s

    async def start(self) -> None:
        """Nothing comes."""

    async def stop(self) -> None:
        """Nothing came."""

    def draw_tracks(self, fleet: Fleet, seconds: float = 600.0, apart: float = 10.0) -> None:
        """Charts of all ranks."""
        assert self.fleet is not None
        times = [NOW - seconds + apart * place for place in range(int(seconds / apart) + 1)]
        numbers: dict[str, Any] = {str(rank.rank): rank for host in fleet.ranks for rank in host}
        for course in self.fleet.courses:
            for key in course.keys.values():
                rank = numbers[key.rank]
                self.tracks[key] = [(time_s, rank.figures(time_s)["allocated_bytes"]) for time_s in times]
