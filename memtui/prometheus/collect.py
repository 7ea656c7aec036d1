"""What a server knows of all ranks at one instant, in few queries."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from memtui.wire.frames import CATEGORIES

from .client import Client, Sample
from .selector import Selector, one_of

#: Of every rank, at every look.
GAUGES = (
    *("allocated_bytes", "reserved_bytes", "allowed_bytes", "inactive_split_bytes", "allocated_peak_bytes"),
    *("allocated_window_peak_bytes", "process_device_bytes", "predicted_peak_device_bytes", "capacity_bytes"),
    *("predicted_peak_allocated_bytes", "alloc_retries_total"),
    *("headroom_bytes", "frame_timestamp_seconds", "step_since_timestamp_seconds", "steps_total", "ooms_total"),
    *("leak_bytes_per_step", "steps_left"),
)
#: Those that are 1 for what is the case, by the label that says what.
STATES = {"memtui_phase": "phase", "memtui_state": "state", "memtui_ends_total": "outcome"}
_DEVICE = ("total_bytes", "used_bytes", "free_bytes", "other_bytes")
#: Beside them: what all processes with an agent hold of a device, whether they are selected or not.
AGENTS = "agents_bytes"
#: What changes seldom, or is needed for comparisons only, is asked for so often.
SELDOM_S = 30.0
#: A rank that has gone with its host is remembered for so long; a server forgets nothing sooner.
REMEMBERED = "1h"
#: With so many targets, their devices are asked for by job.
_MOST_NAMED = 512
_STEP_WINDOW_S = 60.0
#: Looks at what ranks are made of: some steps, so that all have been through all phases.
_MOST_WITHIN = "5m"
_KNOWN = frozenset(CATEGORIES)
_LARGEST = 1 << 62
_MOST_RANKS = 8_192
#: So many targets at once are asked for when they were up.
_MOST_DOWN = 64
#: Times between scrapes that are kept, and the longest that is one.
_INTERVALS, _LONGEST_INTERVAL_S = 16, 600.0


class Key(NamedTuple):
    """Who a rank is among all series: a process of a run, at the target that tells of it."""

    run: str
    rank: str
    pid: str
    job: str
    instance: str


class Place(NamedTuple):
    """A target of the server's."""

    job: str
    instance: str


@dataclass
class DeviceLook:
    """A device of a rank: figures by metric, without "memtui_"; bytes by category."""

    uuid: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    categories: Optional[dict[str, int]] = None  # of this instant; None where they were not asked for
    most: Optional[dict[str, int]] = None  # of each, in the last minutes


@dataclass
class RankLook:
    """A rank at one instant. Nothing is in it that the server had no sample of."""

    devices: dict[str, DeviceLook] = field(default_factory=dict)
    phase: str = ""
    state: str = ""
    outcome: str = ""

    def main(self) -> tuple[str, DeviceLook]:
        """The device with most memory reserved, a GPU before the host, as in the other overviews."""
        return max(
            self.devices.items(),
            key=lambda each: (each[0] != "host", each[1].figures.get("reserved_bytes", 0.0)),
            default=("", DeviceLook()),  # of one that has never sent a frame
        )


class Target(NamedTuple):
    """Whether a target was up at its last scrape, and when that was, in Unix time."""

    up: bool
    scraped_s: float
    seen_s: Optional[float] = None  # of one that is not up, when it was last, as far as that is remembered


class Last(NamedTuple):
    """What was known last of a rank whose target does not answer."""

    vanished: bool  # before the target did
    outcome: str  # how it had ended; "" where it had not


@dataclass(frozen=True)
class Look:
    """Everything at one instant; `time_s` is the server's Unix time."""

    time_s: float
    ranks: Mapping[Key, RankLook]
    info: Mapping[Key, Mapping[str, str]]  # of those that have gone, too
    targets: Mapping[Place, Target]
    devices: Mapping[tuple[str, str, str], Mapping[str, float]]  # by job, instance and UUID
    took_s: float = 0.0
    interval_s: float = 0.0  # between two scrapes; 0 while not known
    left_out: int = 0  # ranks beyond what can be shown
    last: Mapping[Key, Last] = field(default_factory=dict)

    def outcome(self, key: Key) -> str:
        """How a rank has ended, "" where that is not known."""
        rank, last = self.ranks.get(key), self.last.get(key)
        return rank.outcome if rank is not None else last.outcome if last is not None else ""


class Collector:
    """Looks at a server again and again, and asks anew only for what changes."""

    def __init__(self, client: Client, selector: Selector) -> None:
        self.client, self.selector = client, selector
        self._info: dict[Key, dict[str, str]] = {}
        self._told_s = self._most_s = -1e9  # of the server's time, when these were asked for last
        self._most: dict[tuple[Key, str], dict[str, int]] = {}
        self._targets_before: dict[Place, Target] = {}
        self._seen: dict[Place, Optional[float]] = {}
        self._last: dict[Key, Last] = {}
        self._intervals: deque[float] = deque(maxlen=_INTERVALS)

    @property
    def interval_s(self) -> float:
        """Between two scrapes, as far as was seen; 0 while that is not known."""
        return min(self._intervals, default=0.0)

    def look(self, at_s: Optional[float] = None, shown: Iterable[Key] = ()) -> Look:
        """All ranks now, or at an instant; `shown` have their categories as of then. Raises PrometheusError."""
        begun = time.monotonic()
        client, selector = self.client, self.selector
        client.time_s = None
        if at_s is not None:
            self._seen, self._last = {}, {}  # of another time
        ranks: dict[Key, RankLook] = {}
        names = "|".join(GAUGES)
        for sample in client.query(selector.of_ranks(f"~memtui_(?:{names})"), at_s):
            _take(ranks, sample)
        states = "|".join(name[len("memtui_") :] for name in STATES)
        known_s = at_s if at_s is not None else client.time_s
        for sample in client.query(f"{selector.of_ranks(f'~memtui_(?:{states})')} == 1", known_s):
            _take_state(ranks, sample)
        now_s = at_s if at_s is not None else client.time_s if client.time_s is not None else time.time()
        if ranks:
            window = f"{max(_STEP_WINDOW_S, 4 * self.interval_s):.0f}s"
            for name in ("last_step_seconds", "forward_seconds"):
                for sample in client.query(f"avg_over_time({selector.of_ranks(f'memtui_{name}')}[{window}])", now_s):
                    device = _device_of(ranks, sample.labels)
                    if device is not None:
                        device.figures[name] = sample.value
        self._tell(ranks, now_s)
        self._divide(ranks, now_s, list(shown))
        places = {Place(key.job, key.instance) for key in (*ranks, *self._info)}
        targets = self._targets(places, now_s)
        devices = self._devices(places, now_s) if ranks else {}
        left_out = max(0, len(ranks) - _MOST_RANKS)
        if left_out:
            ranks = {key: ranks[key] for key in sorted(ranks)[:_MOST_RANKS]}
        took_s = time.monotonic() - begun
        info, last = dict(self._info), dict(self._last)
        return Look(now_s, ranks, info, targets, devices, took_s, self.interval_s, left_out, last)

    def _tell(self, ranks: Mapping[Key, RankLook], now_s: float) -> None:
        """Who each rank is, also of those that have gone."""
        age_s = now_s - self._told_s
        if 0 <= age_s < SELDOM_S and (age_s < SELDOM_S / 10 or all(key in self._info for key in ranks)):
            return
        self._told_s = now_s
        told: dict[Key, dict[str, str]] = {}
        asked = f"last_over_time({self.selector.of_ranks('memtui_rank_info')}[{REMEMBERED}])"
        for sample in self.client.query(asked, now_s):
            told.setdefault(key_of(sample.labels), sample.labels)
        self._info = told

    def _divide(self, ranks: Mapping[Key, RankLook], now_s: float, shown: list[Key]) -> None:
        """Bytes by category: now and then the most that all had of each, always those of what is in view."""
        metric = "memtui_category_bytes"
        if not 0 <= now_s - self._most_s < SELDOM_S:
            self._most_s = now_s
            self._most = self._categories(
                f"max_over_time({self.selector.of_ranks(metric)}[{_MOST_WITHIN}]) != 0", now_s
            )
        now: dict[tuple[Key, str], dict[str, int]] = {}
        if shown:
            matchers = one_of("rank", {key.rank for key in shown}), one_of("pid", {key.pid for key in shown})
            now = self._categories(f"{self.selector.of_ranks(metric, *matchers)} != 0", now_s)
        for key, rank in ranks.items():
            for device, look in rank.devices.items():
                look.categories, look.most = now.get((key, device)), self._most.get((key, device))

    def _categories(self, asked: str, now_s: float) -> dict[tuple[Key, str], dict[str, int]]:
        found: dict[tuple[Key, str], dict[str, int]] = {}
        for labels, value in self.client.query(asked, now_s):
            category = labels.get("category", "")
            if category in _KNOWN and abs(value) < _LARGEST:
                found.setdefault((key_of(labels), labels.get("device", "")), {})[category] = int(value)
        return found

    def runs(self) -> list[str]:
        """The runs that there are without a selector, by name."""
        asked = Selector().of_ranks("memtui_frame_timestamp_seconds")
        return sorted({each.labels.get("run", "") for each in self.client.query(f"count by (run) ({asked})")})

    def _targets(self, places: set[Place], now_s: float) -> dict[Place, Target]:
        """Of all targets of the jobs of these."""
        known = sorted({place.job for place in places})
        if not known:
            return {}
        chosen = self.selector.of_targets("up", one_of("job", known))
        scraped = {_place(each.labels): each.value for each in self.client.query(f"timestamp({chosen})", now_s)}
        found = {}
        for sample in self.client.query(chosen, now_s):
            place = _place(sample.labels)
            found[place] = Target(sample.value > 0, scraped.get(place, now_s))
        down = {place for place, target in found.items() if not target.up}
        self._tell_seen(down | (places - found.keys()), now_s)
        for place, seen_s in self._seen.items():
            if place in found:
                found[place] = found[place]._replace(seen_s=seen_s)
        for place, target in found.items():
            before = self._targets_before.get(place)
            # One is missed now and then: the least that was seen is the interval.
            if before is not None and 0.1 < target.scraped_s - before.scraped_s < _LONGEST_INTERVAL_S:
                self._intervals.append(target.scraped_s - before.scraped_s)
                break
        self._targets_before = found
        return found

    def _tell_seen(self, down: set[Place], now_s: float) -> None:
        """When targets that are not up were up last: asked for once, when they are first found so."""
        new = sorted(down - self._seen.keys())[:_MOST_DOWN]
        self._seen = {place: seen_s for place, seen_s in self._seen.items() if place in down}
        if not new:
            return
        jobs, instances = {place.job for place in new}, {place.instance for place in new}
        chosen = Selector().of_ranks("up", one_of("job", jobs), one_of("instance", instances))
        self._seen.update(dict.fromkeys(new))
        for labels, value in self.client.query(f"max_over_time(timestamp({chosen} == 1)[{REMEMBERED}:15s])", now_s):
            if _place(labels) in self._seen:
                self._seen[_place(labels)] = value
        self._tell_last(set(new), one_of("job", jobs), one_of("instance", instances), now_s)

    def _tell_last(self, places: set[Place], job: str, instance: str, now_s: float) -> None:
        """How the ranks of targets that do not answer were, when they were told of last."""
        for key in [key for key in self._last if Place(key.job, key.instance) not in self._seen]:
            del self._last[key]
        state = self.selector.of_ranks("memtui_state", 'state="ended"', job, instance)
        # As of their targets: both times are of the server's steps, and equal where both went at once.
        for labels, value in self.client.query(f"max_over_time(timestamp({state} >= 0)[{REMEMBERED}:15s])", now_s):
            key = key_of(labels)
            seen_s = self._seen.get(Place(key.job, key.instance))
            if Place(key.job, key.instance) in places:
                self._last[key] = Last(seen_s is not None and value < seen_s, "")
        ends = self.selector.of_ranks("memtui_ends_total", job, instance)
        for labels, _ in self.client.query(f"last_over_time({ends}[{REMEMBERED}]) == 1", now_s):
            key = key_of(labels)
            if key in self._last:
                self._last[key] = self._last[key]._replace(outcome=labels.get("outcome", ""))

    def _devices(self, places: set[Place], now_s: float) -> dict[tuple[str, str, str], dict[str, float]]:
        matchers = [one_of("job", sorted({place.job for place in places}))]
        instances = sorted({place.instance for place in places})
        if len(instances) <= _MOST_NAMED:
            matchers.append(one_of("instance", instances))
        found: dict[tuple[str, str, str], dict[str, float]] = {}
        asked = self.selector.of_targets(f"~memtui_device_(?:{'|'.join(_DEVICE)})", *matchers)
        for sample in self.client.query(asked, now_s):
            labels = sample.labels
            device = labels.get("job", ""), labels.get("instance", ""), labels.get("device_uuid", "")
            name = labels.get("__name__", "").removeprefix("memtui_device_")
            found.setdefault(device, {})[name] = sample.value
        held = self.selector.of_targets("memtui_process_device_bytes", *matchers)
        for sample in self.client.query(f"sum by (job, instance, device_uuid) ({held})", now_s):
            labels = sample.labels
            device = labels.get("job", ""), labels.get("instance", ""), labels.get("device_uuid", "")
            if device in found:
                found[device][AGENTS] = sample.value
        return found


def key_of(labels: Mapping[str, str]) -> Key:
    """Which rank a series is of."""
    get = labels.get
    return Key(get("run", ""), get("rank", ""), get("pid", ""), get("job", ""), get("instance", ""))


def _place(labels: Mapping[str, str]) -> Place:
    return Place(labels.get("job", ""), labels.get("instance", ""))


def _take(ranks: dict[Key, RankLook], sample: Sample) -> None:
    labels = sample.labels
    rank = ranks.setdefault(key_of(labels), RankLook())
    name = labels.get("device", "")
    device = rank.devices.get(name)
    if device is None:
        device = rank.devices[name] = DeviceLook(labels.get("device_uuid", ""))
    device.figures[labels.get("__name__", "").removeprefix("memtui_")] = sample.value


def _take_state(ranks: dict[Key, RankLook], sample: Sample) -> None:
    rank = ranks.setdefault(key_of(sample.labels), RankLook())
    label = STATES.get(sample.labels.get("__name__", ""))
    if label is not None:
        setattr(rank, label, sample.labels.get(label, ""))


def _device_of(ranks: Mapping[Key, RankLook], labels: Mapping[str, str]) -> Optional[DeviceLook]:
    rank = ranks.get(key_of(labels))
    return None if rank is None else rank.devices.get(labels.get("device", ""))
