"""A rank's samples over time as what an agent and a driver would have said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Optional

from memtui.analysis.text import clean
from memtui.session.readings import DeviceReading, DriverReading, HostReading, OtherProcess, ToldForecast
from memtui.session.session import Session
from memtui.wire.frames import PHASES, PROTOCOL, Classification, Device, DeviceFrame, Event, Frame, Hello

from .client import Track
from .collect import STATES, Key, Look
from .rows import end_text, host_of, others_of, whole

#: Counters that tell of something that happened, and what that is called.
_EXHAUSTED = "ooms_total"
_HAPPENED = {_EXHAUSTED: "oom", "alloc_retries_total": "alloc_retry"}
#: Events that are counted, and no counter of torch's.
_COUNTED = {
    "optimizer_state_appeared": "optimizer state appeared",
    "recorded": "a step was recorded there",
    "agent_error": "the agent met an error",
}
_TEXTS = {
    "oom": "out of memory ({count:,} so far); PyTorch's message is not in Prometheus, the program's log has it",
    "alloc_retry": "allocation retried after the cache was given back ({count:,} so far)",
}
_SOURCE = "as memtui serve foretold it on the rank's machine"
_LARGEST = 1 << 62
_EVENT = "event "


@dataclass
class Moment:
    """One scrape: the frame, and what else was known then. `end` is how the process ended, "" while it lives."""

    frame: Frame
    driver: Optional[DriverReading] = None
    host: Optional[HostReading] = None
    forecasts: dict[str, ToldForecast] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    end: str = ""

    @property
    def time_ns(self) -> int:
        """Unix time."""
        return self.frame.time_ns

    def tell(self, session: Session) -> None:
        """Takes it into a session, as from an agent and a driver."""
        for event in self.events:
            session.apply(event, self.time_ns)
        session.apply(self.frame, self.time_ns)
        if self.driver is not None:
            session.apply_driver(self.driver)
        if self.host is not None:
            session.apply_host(self.host)
        session.told_forecasts.update(self.forecasts)
        if self.end and session.end is None:
            end_session(session, self.time_ns, self.end)


class _Figures(NamedTuple):
    """What was known of all devices at one instant: figures by device and name, categories, and what is the case."""

    devices: dict[str, dict[str, float]]
    categories: dict[str, dict[str, int]]
    states: dict[str, str]
    driver: dict[str, dict[str, float]]  # by UUID


def hello_of(key: Key, info: Iterable[Mapping[str, str]], totals: Mapping[str, float]) -> Hello:
    """Who the rank is; `info` has a set of labels for each of its devices, `totals` bytes by UUID."""
    told = [dict(each) for each in info]
    first: Mapping[str, str] = told[0] if told else {}
    devices = tuple(
        Device(
            clean(each.get("device", ""), 40),
            clean(each.get("device", ""), 40).partition(":")[0] or "cuda",
            clean(each.get("device_name", ""), 80),
            "memtui serve",
            uuid=each.get("device_uuid") or None,
            total_bytes=_whole(totals, each.get("device_uuid", "")),
        )
        for each in told
        if each.get("device")
    )
    return Hello(
        protocol=PROTOCOL,
        agent=clean(first.get("agent", ""), 40),
        pid=whole(key.pid) or 0,
        python=clean(first.get("python", ""), 40),
        torch=clean(first.get("torch", ""), 40),
        argv=(clean(first.get("script") or key.run, 120),),
        cwd="",
        hostname=host_of(key, first),
        time_ns=0,
        wall_offset_ns=0,  # all times are Unix times
        started_ns=0,
        devices=devices,
        rank=whole(key.rank),
        world_size=whole(first.get("world_size", "")),
        local_rank=whole(first.get("local_rank", "")),
    )


def moments_of(tracks: Sequence[Track], uuids: Mapping[str, str], first: int = 1) -> list[Moment]:
    """The moments of a rank's series and of its devices', in the order of time; frames are counted from `first`.

    `uuids` are by device. A scrape that brought no new frame is no moment.
    """
    by_time = _by_time(tracks)
    found: list[Moment] = []
    counted: dict[tuple[str, str], float] = {}
    if first == 1:
        counted = {(device, _EXHAUSTED): 0.0 for device in uuids}  # also what happened before the first is told
    for time_s in sorted(by_time):
        figures = by_time[time_s]
        told = [each.get("frame_timestamp_seconds") for each in figures.devices.values()]
        newest = max((value for value in told if value is not None), default=time_s)
        time_ns = int(newest * 1e9)
        end = figures.states.get("outcome", "")
        if not figures.devices or (found and time_ns <= found[-1].time_ns and not (end and not found[-1].end)):
            continue
        nothing = all("allocated_bytes" not in each for each in figures.devices.values())
        if found and (time_ns <= found[-1].time_ns or (end and nothing)):
            # It has ended, and holds nothing any more: its last figures are those of before.
            last = found[-1].frame
            frame = replace(last, sequence=first + len(found), time_ns=max(time_ns, last.time_ns + 1))
            found.append(Moment(frame, events=_events(figures, frame, counted), end=end))
            continue
        found.append(_moment(figures, time_ns, first + len(found), uuids, counted, end))
    return found


def moment_now(look: Look, key: Key) -> list[Moment]:
    """The newest scrape alone, as far as a look at all ranks knows of it; empty of one that has gone."""
    rank = look.ranks.get(key)
    if rank is None:
        return []
    at = look.time_s
    tracks = [
        Track({"__name__": f"memtui_{name}", "device": device}, [(at, value)])
        for device, held in rank.devices.items()
        for name, value in held.figures.items()
    ]
    tracks += [
        Track({"__name__": "memtui_category_bytes", "device": device, "category": category}, [(at, float(value))])
        for device, held in rank.devices.items()
        for category, value in (held.categories or {}).items()
    ]
    for metric, label in STATES.items():
        tracks.append(Track({"__name__": metric, label: getattr(rank, label)}, [(at, 1.0)]))
    uuids = {device: held.uuid for device, held in rank.devices.items()}
    for uuid in uuids.values():
        for name, value in look.devices.get((key.job, key.instance, uuid), {}).items():
            tracks.append(Track({"__name__": f"memtui_device_{name}", "device_uuid": uuid}, [(at, value)]))
    return moments_of(tracks, uuids)


def devices_of(look: Look, key: Key) -> list[dict[str, str]]:
    """The labels that say who a rank is, once for each of its devices."""
    known, rank = dict(look.info.get(key, {})), look.ranks.get(key)
    if rank is None:
        return [known] if known else []
    return [{**known, "device": device, "device_uuid": held.uuid} for device, held in rank.devices.items()]


def _by_time(tracks: Sequence[Track]) -> dict[float, _Figures]:
    by_time: dict[float, _Figures] = defaultdict(lambda: _Figures({}, {}, {}, {}))
    for labels, points in tracks:
        name = labels.get("__name__", "").removeprefix("memtui_")
        device = clean(labels.get("device", ""), 40)
        state = STATES.get(f"memtui_{name}")
        if state is not None:
            for time_s, value in points:
                if value == 1:
                    by_time[time_s].states[state] = labels.get(state, "")
            continue
        category = clean(labels.get("category", ""), 40)
        event = labels.get("event", "")
        for time_s, value in points:
            known = by_time[time_s]
            if name.startswith("device_"):
                known.driver.setdefault(labels.get("device_uuid", ""), {})[name[len("device_") :]] = value
            elif name == "category_bytes":
                if -_LARGEST < value < _LARGEST:
                    known.categories.setdefault(device, {})[category] = int(value)
            elif name == "events_total":
                if event in _COUNTED:
                    known.devices.setdefault(device, {})[f"{_EVENT}{event}"] = value
            elif device and name != "rank_info":
                known.devices.setdefault(device, {})[name] = value
    return by_time


def _moment(
    known: _Figures,
    time_ns: int,
    sequence: int,
    uuids: Mapping[str, str],
    counted: dict[tuple[str, str], float],
    end: str,
) -> Moment:
    any_device = next(iter(known.devices.values()))
    step = _whole(any_device, "steps_total") or 0
    phase = known.states.get("phase", "")
    phase = phase if phase in PHASES else ""
    devices, forecasts = [], {}
    for device, figures in known.devices.items():
        devices.append(_device_frame(device, figures, known.categories.get(device), phase, step))
        predicted = _whole(figures, "predicted_peak_allocated_bytes")
        if predicted is not None:
            forecasts[device] = ToldForecast(
                predicted,
                _whole(figures, "predicted_peak_device_bytes"),
                _whole(figures, "headroom_bytes"),
                source=_SOURCE,
            )
    since, lasted = any_device.get("step_since_timestamp_seconds"), any_device.get("last_step_seconds")
    frame = Frame(
        sequence=sequence,
        time_ns=time_ns,
        late_ns=0,
        step=step,
        phase=phase,
        phase_since_ns=time_ns,  # when it began is not known
        devices=tuple(devices),
        step_since_ns=None if since is None else min(time_ns, int(since * 1e9)),
        last_step_ns=None if lasted is None or not 0 <= lasted < 1e8 else int(lasted * 1e9),
    )
    readings = [_reading(known, device, uuid, time_ns) for device, uuid in uuids.items() if uuid in known.driver]
    host = None
    if "host" in known.devices:
        figures = known.devices["host"]
        resident, capacity = _whole(figures, "resident_bytes"), _whole(figures, "capacity_bytes")
        host = HostReading(time_ns, True, rss_bytes=resident, total_bytes=capacity)
    # Of a process that has ended the driver says nothing any more.
    driver = DriverReading(time_ns, tuple(readings)) if readings and not end else None
    return Moment(frame, driver, host, forecasts, _events(known, frame, counted), end)


def _events(known: _Figures, frame: Frame, counted: dict[tuple[str, str], float]) -> tuple[Event, ...]:
    """What has happened since the scrape before, as counters tell; `counted` has what they were then."""
    found = []
    for device, figures in known.devices.items():
        for counter, name in _HAPPENED.items():
            count, before = figures.get(counter), counted.get((device, counter))
            if count is not None:
                counted[device, counter] = count
                if before is not None and count > before:
                    text = _TEXTS[name].format(count=int(count))
                    found.append(Event(name, frame.time_ns, frame.step, frame.phase, device, {}, text))
        for name, text in _COUNTED.items():
            count, before = figures.get(f"{_EVENT}{name}"), counted.get((device, name))
            if count is not None:
                counted[device, name] = count
                if before is not None and count > before:
                    found.append(Event(name, frame.time_ns, frame.step, frame.phase, device, {}, text))
    return tuple(found)


def _device_frame(
    device: str, figures: Mapping[str, float], categories: Optional[dict[str, int]], phase: str, step: int
) -> DeviceFrame:
    classification = None
    if categories:
        classification = Classification(0, sum(categories.values()), phase, step, categories)

    def held(name: str) -> Optional[int]:
        return _whole(figures, name)

    return DeviceFrame(
        device,
        allocated_bytes=held("allocated_bytes"),
        reserved_bytes=held("reserved_bytes"),
        active_bytes=held("active_bytes"),
        requested_bytes=held("requested_bytes"),
        inactive_split_bytes=held("inactive_split_bytes"),
        allocated_peak_bytes=held("allocated_peak_bytes"),
        reserved_peak_bytes=held("reserved_peak_bytes"),
        last_step_peak_bytes=held("last_step_peak_bytes"),
        num_alloc_retries=held("alloc_retries_total"),
        num_ooms=held("ooms_total"),
        rss_bytes=held("resident_bytes") if device == "host" else None,
        allowed_bytes=held("allowed_bytes"),
        classification=classification,
    )


def _reading(known: _Figures, device: str, uuid: str, time_ns: int) -> DeviceReading:
    figures, own = known.driver[uuid], known.devices.get(device, {})
    held, process = others_of(figures, _whole(own, "process_device_bytes")), _whole(own, "process_device_bytes")
    others: Optional[tuple[OtherProcess, ...]] = None
    if held is not None:
        others = (OtherProcess(0, held, "others"),) if held else ()
    return DeviceReading(
        uuid,
        time_ns,
        total_bytes=_whole(figures, "total_bytes"),
        used_bytes=_whole(figures, "used_bytes"),
        free_bytes=_whole(figures, "free_bytes"),
        driver_reserved_bytes=_whole(figures, "reserved_bytes"),
        process_bytes=process,
        others=others,
    )


def end_session(session: Session, time_ns: int, outcome: str) -> None:
    """Says how the process ended, as far as an outcome tells."""
    if outcome == "ok":
        session.ended(time_ns, 0)
    else:
        session.ended(time_ns, text=end_text(outcome).removeprefix("ended: "))


def _whole(figures: Mapping[str, float], name: str) -> Optional[int]:
    value = figures.get(name)
    return None if value is None or not -_LARGEST < value < _LARGEST else int(value)
