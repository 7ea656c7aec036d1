"""From ranks and devices to metrics: their names, what each says, and their labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from memtui import __version__
from memtui.session.readings import DeviceReading
from memtui.session.session import Session
from memtui.wire.frames import PHASES

from . import figures
from .labels import RANK, label
from .life import OUTCOMES
from .rank import Rank

STATES = ("live", "silent", "stopped", "ended")
#: Rank-devices that are exposed; of more, how many were left out.
MOST_EXPOSED = 4096

GAUGES = {
    "allocated_bytes": "Live tensors, as the allocator counts them.",
    "reserved_bytes": "Segments that the caching allocator holds of the device.",
    "active_bytes": "Allocated, and freed by the program while another stream may still use it.",
    "requested_bytes": "What the program asked for, before rounding.",
    "inactive_split_bytes": "Free blocks that a live neighbour pins in a segment.",
    "allowed_bytes": "The most that the process lets its allocator reserve, where it has set a cap.",
    "allocated_peak_bytes": "Highest allocated, since the start or the program's last reset.",
    "reserved_peak_bytes": "Highest reserved, since the start or the program's last reset.",
    "allocated_window_peak_bytes": "Highest allocated within the last 60 s, peaks between samples included.",
    "last_step_peak_bytes": "Highest allocated in the last step that was read.",
    "process_device_bytes": "What the driver counts for this process on the device.",
    "predicted_peak_allocated_bytes": "Predicted peak of live tensors.",
    "predicted_peak_device_bytes": "Predicted peak with everything else on the device.",
    "capacity_bytes": "What the predicted peak is held against: the device, a cap, or what a host can give.",
    "headroom_bytes": "Capacity less the predicted peak; negative where it does not fit.",
    "leak_bytes_per_step": "What each step leaves behind, while that is judged a leak.",
    "steps_left": "Steps until the device is full, while a leak goes on.",
    "last_step_seconds": "How long the last step took.",
    "forward_seconds": "How long a forward takes: the median of the newest.",
    "step_since_timestamp_seconds": "When the step under way began, in Unix time.",
    "frame_timestamp_seconds": "When the newest figures were read, in Unix time.",
    "resident_bytes": "Resident set of the process.",
}
COUNTERS = {
    "steps": "Completed training steps.",
    "ooms": "Allocations that the allocator gave up.",
    "alloc_retries": "Allocations that succeeded only after the cache was given back.",
    "lost_frames": "Samples that were not taken in time.",
}
_INFO = ("local_rank", "world_size", "host", "device_name", "script", "torch", "python", "agent")
_DEVICE = ("device_uuid", "index", "device_name")
_DEVICE_GAUGES = {
    "total_bytes": "Memory of the device.",
    "used_bytes": "In use, by whomever.",
    "free_bytes": "Free, as the driver says.",
    "reserved_bytes": "What the driver keeps for itself.",
    "other_bytes": "Held by processes without an agent.",
}


@dataclass
class Own:
    """What is exposed of the exposing process itself."""

    agents: int = 0
    left_out: int = 0
    refused: dict[str, int] = field(default_factory=dict)


class Ranks:
    """Families of the ranks' series, filled one rank after the other."""

    def __init__(self) -> None:
        self._gauges = {name: _gauge(name, text, RANK) for name, text in GAUGES.items()}
        self._counters = {name: _counter(name, text, RANK) for name, text in COUNTERS.items()}
        self._category = _gauge("category_bytes", "Allocated, by what it is; adds up to it.", (*RANK, "category"))
        self._phase = _gauge("phase", "1 for the phase that the training is in.", (*RANK, "phase"))
        self._state = _gauge("state", "1 for the state of the process.", (*RANK, "state"))
        self._events = _counter("events", "Events that the agent told of.", (*RANK, "event"))
        self._ends = _counter("ends", "1 once the process has ended so.", (*RANK, "outcome"))
        self._info = InfoMetricFamily("memtui_rank", "Who a rank is.", labels=RANK)
        self._known: set[tuple[str, ...]] = set()
        self.left_out = 0

    def add(self, rank: Rank, now_ns: int) -> None:
        """The series of a rank on each of its devices."""
        session = rank.session
        names = [device.device for device in session.devices if session.device_frame(device.device)] or [""]
        for name in names:
            labels = (rank.run, rank.rank, str(rank.pid), label(name), label(_uuid(session, name)))
            if labels in self._known or len(self._known) >= MOST_EXPOSED:
                self.left_out += 1
                continue
            self._known.add(labels)
            self._add(rank, name, labels, now_ns)

    def _add(self, rank: Rank, device: str, labels: tuple[str, ...], now_ns: int) -> None:
        for name, value in figures.gauges(rank, device, now_ns).items():
            _put(self._gauges[name], labels, value)
        for name, value in figures.counters(rank, device).items():
            _put(self._counters[name], labels, value)
        for name, size in figures.categories(rank, device).items():
            _put(self._category, (*labels, name), size)
        for name, count in figures.events(rank, device).items():
            _put(self._events, (*labels, name), count)
        frame, state = rank.session.frame, rank.state
        if frame is not None and not rank.over:
            for phase in PHASES:
                _put(self._phase, (*labels, phase), phase == frame.phase)
        for name in STATES:
            _put(self._state, (*labels, name), name == state)
        for outcome in OUTCOMES:
            _put(self._ends, (*labels, outcome), outcome == rank.outcome)
        self._info.add_metric(labels, rank.info(device))

    def families(self) -> list[Any]:
        """All of them that have a series."""
        several = [self._category, self._phase, self._state, self._events, self._ends, self._info]
        return [family for family in (*self._gauges.values(), *self._counters.values(), *several) if family.samples]


def _uuid(session: Session, device: str) -> str:
    """As the driver writes it: torch leaves what stands in front of it out."""
    known, reading = session.device(device), session.reading(device)
    if reading is not None:
        return reading.uuid
    uuid = "" if known is None else known.uuid or ""
    return uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def devices(readings: Iterable[DeviceReading], watched: Sequence[int]) -> list[Any]:
    """Families of the devices, as the driver sees them; `watched` are the processes that have an agent."""
    found = {name: _gauge(f"device_{name}", text, _DEVICE) for name, text in _DEVICE_GAUGES.items()}
    for reading in readings:
        index = "" if reading.index is None else str(reading.index)
        labels = (label(reading.uuid), index, label(reading.name))
        _put(found["total_bytes"], labels, reading.total_bytes)
        _put(found["used_bytes"], labels, reading.used_bytes)
        _put(found["free_bytes"], labels, reading.free_bytes)
        _put(found["reserved_bytes"], labels, reading.driver_reserved_bytes)
        _put(found["other_bytes"], labels, _other_bytes(reading, watched))
    return [family for family in found.values() if family.samples]


def _other_bytes(reading: DeviceReading, watched: Sequence[int]) -> Optional[int]:
    if reading.others is None:
        return None
    held = [process.bytes_held for process in reading.others if process.pid not in watched]
    known = [size for size in held if size is not None]
    return sum(known) if len(known) == len(held) else None


def own(told: Own) -> list[Any]:
    """Families of the exposing process itself."""
    build = InfoMetricFamily("memtui_build", "The memtui that exposes this.", value={"version": __version__})
    agents = GaugeMetricFamily("memtui_serve_agents", "Agents that are read.", told.agents)
    left_out = GaugeMetricFamily("memtui_serve_left_out", "Series of ranks that are not exposed.", told.left_out)
    refused = _counter("serve_refused", "Scrapers and agents that were turned away.", ("reason",))
    for reason, count in sorted(told.refused.items()):
        _put(refused, (reason,), count)
    return [build, agents, left_out, refused]


def _gauge(name: str, text: str, labels: Sequence[str]) -> Any:
    return GaugeMetricFamily(f"memtui_{name}", text, labels=labels)


def _counter(name: str, text: str, labels: Sequence[str]) -> Any:
    return CounterMetricFamily(f"memtui_{name}", text, labels=labels)


def _put(family: Any, labels: Sequence[str], value: Optional[float]) -> None:
    if value is not None:
        family.add_metric(labels, float(value))
