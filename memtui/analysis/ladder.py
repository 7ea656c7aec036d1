"""One device's memory from outside in: every rung measured or derived from measured ones, none of them clamped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from memtui.session.readings import OtherProcess
from memtui.session.session import Paired, Session
from memtui.wire.frames import DeviceFrame

from . import units
from .policy import Policy


@dataclass(frozen=True)
class Ladder:
    """The rungs, in bytes; None is unknown.

    Where `total_bytes` is known they add up to it exactly: free + driver_reserved + unattributed + others + process,
    each unknown one counted as nothing, because then `unattributed_bytes` holds it. Rests may be negative.

    The driver is read once a second and the allocator ten times. What lies outside the allocator (`non_torch`,
    `others`, `unattributed`) is of the driver's instant; `reserved` and below are of the agent's; `free` and `used` are
    the driver's, moved by what the allocator has taken or given back since.
    """

    total_bytes: Optional[int] = None
    used_bytes: Optional[int] = None
    free_bytes: Optional[int] = None
    driver_reserved_bytes: Optional[int] = None
    unattributed_bytes: Optional[int] = None
    other_process_bytes: Optional[int] = None
    process_bytes: Optional[int] = None
    non_torch_bytes: Optional[int] = None
    reserved_bytes: Optional[int] = None
    allocated_bytes: Optional[int] = None
    active_pending_free_bytes: Optional[int] = None
    allowed_bytes: Optional[int] = None  # the most the process lets its allocator reserve, where it has set a cap
    others: tuple[OtherProcess, ...] = ()
    driver_age_ns: Optional[int] = None  # of the driver's figures, against the agent's
    moved_bytes: int = 0  # what reserved has grown by since the driver was read
    settled: bool = True  # reserved stood still while the driver was read
    is_host: bool = False
    source: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def reach_bytes(self) -> Optional[int]:
        """What the predicted peak is to fit into: a device, all of it; of a host what this process has and can get."""
        if not self.is_host:
            return self.total_bytes
        return None if self.process_bytes is None or self.free_bytes is None else self.process_bytes + self.free_bytes


def build_ladder(session: Session, device: str, now_ns: int, policy: Policy) -> Ladder:
    """The ladder of `device`, from the newest frame and the driver's reading beside it."""
    frame = session.device_frame(device)
    at_ns = session.frame.time_ns if frame is not None and session.frame is not None else now_ns
    known = session.device(device)
    if known is not None and known.kind == "host":
        return _host(session, frame, at_ns)
    reserved = None if frame is None else frame.reserved_bytes
    allocated = None if frame is None else frame.allocated_bytes
    inside = Ladder(
        reserved_bytes=reserved,
        allocated_bytes=allocated,
        active_pending_free_bytes=pending_free_bytes(frame),
        allowed_bytes=None if frame is None else frame.allowed_bytes,
    )
    pair = session.paired(device)
    total = None if known is None else known.total_bytes
    if pair is None:
        reason = session.driver.reason if session.driver is not None else ""
        return _with(inside, total_bytes=total, notes=(reason,) if reason else ())
    return _driver(inside, pair, total, at_ns)


def pending_free_bytes(frame: Optional[DeviceFrame]) -> Optional[int]:
    """Freed by the program, waiting for another stream."""
    if frame is None or frame.active_bytes is None or frame.allocated_bytes is None:
        return None
    return frame.active_bytes - frame.allocated_bytes


def _driver(inside: Ladder, pair: Paired, total: Optional[int], at_ns: int) -> Ladder:
    reading = pair.reading
    total = reading.total_bytes if reading.total_bytes is not None else total
    notes = [reading.reason] if reading.reason else []
    if total is None or reading.free_bytes is None or reading.used_bytes is None:
        return _with(inside, total_bytes=total, notes=tuple(notes))
    reserved_then = pair.reserved_bytes if pair.reserved_bytes is not None else inside.reserved_bytes
    reserved_now = inside.reserved_bytes
    if pair.settled and reserved_then is not None and reading.used_bytes < reserved_then:
        # Seen with unified memory, and with figures of another device: nothing can be derived from such a pair.
        notes.append("the driver counts less in use than PyTorch holds on this device: its figures are left out")
        return _with(inside, total_bytes=total, notes=tuple(notes))
    moved = 0 if reserved_now is None or reserved_then is None else reserved_now - reserved_then
    process = reading.process_bytes
    others = reading.other_process_bytes()
    if process is None and reserved_now:
        # This process holds memory and is not in the list: it is there under another pid or not at all, so the list
        # tells nothing about who the others are.
        others = None
        if not reading.reason:
            notes.append("the driver's list of processes does not name this one")
    driver_reserved = reading.driver_reserved_bytes
    # What the driver says is in use by nobody it names. The allocator's own part is known to be this process's.
    named = (process if process is not None else reserved_then or 0) + (others or 0)
    unattributed = total - reading.free_bytes - (driver_reserved or 0) - named
    non_torch = None if process is None or reserved_then is None else process - reserved_then
    free = reading.free_bytes - moved
    if (free < 0 and not pair.settled) or (process is None and unattributed < 0):
        # Of two moments between which much was taken: what is outside the allocator would be told far too large, or
        # less than nothing.
        notes.append("reserved memory was changing while the driver was read: its figures are left out")
        return _with(inside, total_bytes=total, notes=tuple(notes))
    if not pair.settled and pair.reserved_bytes is not None and moved:
        notes.append("reserved memory was changing while the driver was read")
    if free < 0:
        notes.append("more is in use than the device holds: the driver has moved some of it to host memory")
    return _with(
        inside,
        total_bytes=total,
        used_bytes=reading.used_bytes + moved,
        free_bytes=free,
        driver_reserved_bytes=driver_reserved,
        unattributed_bytes=unattributed,
        other_process_bytes=others,
        process_bytes=reserved_now if process is None else process + moved,
        non_torch_bytes=non_torch,
        others=reading.others or () if others is not None else (),
        driver_age_ns=at_ns - reading.time_ns,
        moved_bytes=moved,
        settled=pair.settled,
        source="NVML v2" if driver_reserved is not None else "NVML v1",
        notes=tuple(notes),
    )


def _host(session: Session, frame: Optional[DeviceFrame], at_ns: int) -> Ladder:
    host = session.host
    allocated = None if frame is None else frame.allocated_bytes
    reserved = None if frame is None else frame.reserved_bytes
    rss = frame.rss_bytes if frame is not None and frame.rss_bytes is not None else None
    if rss is None and host is not None:
        rss = host.rss_bytes
    inside = Ladder(
        process_bytes=rss,
        used_bytes=rss,
        reserved_bytes=reserved,
        allocated_bytes=allocated,
        # Of one instant, both the agent's. Negative where malloc holds pages that were never touched.
        non_torch_bytes=None if rss is None or reserved is None else rss - reserved,
        is_host=True,
        source="resident set size",
    )
    if host is None:
        return inside
    capacity, room = host.capacity_bytes, host.room_bytes
    notes: tuple[str, ...] = ()
    if host.limit_bytes is not None and host.total_bytes is not None:
        notes = (
            f"this process is limited to {units.size(host.limit_bytes)} by its cgroup; "
            f"the machine has {units.size(host.total_bytes)}",
        )
    if capacity is None or room is None or host.rss_bytes is None:
        return _with(inside, total_bytes=capacity, notes=notes)
    moved = 0 if rss is None else rss - host.rss_bytes
    return _with(
        inside,
        total_bytes=capacity,
        free_bytes=room - moved,
        # Strangers', and what the system itself holds: nobody's that this process could have.
        other_process_bytes=capacity - room - host.rss_bytes,
        driver_age_ns=at_ns - host.time_ns,
        moved_bytes=moved,
        notes=notes,
    )


def _with(ladder: Ladder, **changes: object) -> Ladder:
    return Ladder(**{**ladder.__dict__, **changes})
