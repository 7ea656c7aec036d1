"""The figures of one rank on one device, as the screen shows them, by the names they are exposed under."""

from __future__ import annotations

from typing import Optional

from memtui.analysis.forecast import build_forecast
from memtui.analysis.ladder import Ladder, build_ladder
from memtui.analysis.leak import find_leak
from memtui.analysis.policy import DEFAULT
from memtui.session.session import Session
from memtui.wire.frames import CATEGORIES, DeviceFrame, Frame

from .rank import EVENTS, Rank

#: The window of the highest that was allocated: longer than what is usually between two scrapes.
WINDOW_NS = 60_000_000_000
_RECENT_STEPS = 16
_NS = 1_000_000_000

Figures = dict[str, Optional[float]]

#: What the counters of the allocator are called here, in the order in which they are exposed.
_HELD = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes")
_PEAKS = ("allocated_peak_bytes", "reserved_peak_bytes")


def gauges(rank: Rank, device: str, now_ns: int) -> Figures:
    """Every gauge; None is unknown. Of a rank that has ended its peaks alone: it holds nothing any more."""
    session, found = rank.session, Figures()
    frame, whole = session.device_frame(device), session.frame
    if frame is not None:
        found.update({name: getattr(frame, name) for name in _PEAKS})
        found["last_step_peak_bytes"] = frame.last_step_peak_bytes
        found["allocated_window_peak_bytes"] = _window_peak(session, device, now_ns)
    if whole is not None and session.hello is not None:
        found.update(_times(session, whole, session.hello.wall_offset_ns, over=rank.over))
    if rank.over:
        return found
    if frame is not None:
        found.update({name: getattr(frame, name) for name in _HELD})
        found["allowed_bytes"] = frame.allowed_bytes
        found.update(_foretold(session, device, now_ns))
    reading, host = session.reading(device), session.host
    found["process_device_bytes"] = None if reading is None else reading.process_bytes
    found["resident_bytes"] = None if host is None else host.rss_bytes
    return found


def categories(rank: Rank, device: str) -> dict[str, int]:
    """Bytes by category; they add up to what is allocated. Empty where nothing was classified."""
    frame: Optional[DeviceFrame] = rank.session.device_frame(device)
    told = None if frame is None or rank.over else frame.categories()
    if told is None:
        return {}
    found = {name: told.get(name, 0) for name in CATEGORIES}
    # A newer agent's are nobody's here.
    found["unattributed"] += sum(size for name, size in told.items() if name not in found)
    return found


def counters(rank: Rank, device: str) -> Figures:
    """What only grows in one process."""
    frame, whole = rank.session.device_frame(device), rank.session.frame
    return {
        "steps": None if whole is None else whole.step,
        "ooms": None if frame is None else frame.num_ooms,
        "alloc_retries": None if frame is None else frame.num_alloc_retries,
        "lost_frames": None if whole is None else rank.lost,
    }


def events(rank: Rank, device: str) -> dict[str, int]:
    """How often each event was told of; one that names no device is one of every device."""
    return {name: rank.events[device, name] + rank.events[None, name] for name in (*EVENTS, "other")}


def _window_peak(session: Session, device: str, now_ns: int) -> Optional[int]:
    series = session.series(device, "allocated_bytes")
    if series is None:
        return None
    [window] = series.window(now_ns - WINDOW_NS, now_ns + 1, 1)
    return None if window is None else window[1]


def _times(session: Session, frame: Frame, offset_ns: int, *, over: bool) -> Figures:
    found: Figures = {"frame_timestamp_seconds": (frame.time_ns + offset_ns) / _NS}
    if frame.last_step_ns is not None:
        found["last_step_seconds"] = frame.last_step_ns / _NS
    forward_ns = session.phases.median_ns("forward", _RECENT_STEPS)
    if forward_ns is not None:
        found["forward_seconds"] = forward_ns / _NS
    if not over:
        began_ns = frame.step_since_ns or frame.phase_since_ns
        found["step_since_timestamp_seconds"] = (began_ns + offset_ns) / _NS
    return found


def _foretold(session: Session, device: str, now_ns: int) -> Figures:
    ladder = build_ladder(session, device, now_ns, DEFAULT)
    forecast = build_forecast(session, device, ladder)
    found: Figures = {
        "predicted_peak_allocated_bytes": forecast.allocated_bytes,
        "predicted_peak_device_bytes": forecast.device_bytes,
        "headroom_bytes": forecast.headroom_bytes,
        "capacity_bytes": _capacity(ladder, forecast.allowed_bytes, forecast.device_bytes, forecast.headroom_bytes),
    }
    leak = find_leak(session.floors(device), forecast.headroom_bytes, DEFAULT)
    if leak is not None:
        found["leak_bytes_per_step"] = leak.bytes_per_step
        found["steps_left"] = leak.steps_to_full
    return found


def _capacity(ladder: Ladder, allowed: Optional[int], peak: Optional[int], headroom: Optional[int]) -> Optional[int]:
    """What the predicted peak is held against: a cap, else the device, or what a process can have of the host."""
    if allowed is not None:
        return allowed
    return ladder.reach_bytes if peak is None or headroom is None else peak + headroom
