"""Reserved against allocated, and PyTorch's figures against the driver's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from memtui.analysis import units
from memtui.analysis.fragmentation import Holes
from memtui.analysis.ladder import Ladder
from memtui.analysis.policy import Policy
from memtui.analysis.view import Kind
from memtui.session.session import Session
from memtui.wire.frames import DeviceFrame

from .facts import Row, Section, cell

_COLUMNS = (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved"))
#: Rows of one figure each, which is named by the row.
_DRIVER = (("", ""),)


def reserved_section(session: Session, device: str, holes: Holes) -> Section:
    """At their peaks and at the end; what is pinned; how often the cache was given back."""
    frame = session.device_frame(device)
    rows = [_peaks(frame), _newest(frame, over=session.end is not None), _pinned(frame, holes), _counts(frame)]
    return Section("reserved", "Reserved against allocated", tuple(rows), _COLUMNS)


def _peaks(frame: Optional[DeviceFrame]) -> Row:
    allocated = None if frame is None else frame.allocated_peak_bytes
    reserved = None if frame is None else frame.reserved_peak_bytes
    cells = (cell("allocated_bytes", allocated), cell("reserved_bytes", reserved))
    return Row("peak", "at their peaks", cells, _between(allocated, reserved) or "PyTorch counts no such peak here")


def _newest(frame: Optional[DeviceFrame], *, over: bool) -> Row:
    allocated = None if frame is None else frame.allocated_bytes
    reserved = None if frame is None else frame.reserved_bytes
    cells = (cell("allocated_bytes", allocated), cell("reserved_bytes", reserved))
    return Row("last", "at the end" if over else "at last", cells, _between(allocated, reserved))


def _between(allocated: Optional[int], reserved: Optional[int]) -> str:
    if allocated is None or not reserved:
        return ""
    return f"{units.percent(allocated, reserved)} of reserved is live"


def _pinned(frame: Optional[DeviceFrame], holes: Holes) -> Row:
    known = frame is not None and (frame.inactive_split_bytes is not None or holes.segments is not None)
    figure = cell("inactive_split_bytes", holes.pinned_bytes if known else None)
    if not known:
        return Row("pinned", "pinned holes", (figure,), f"{units.UNKNOWN} the allocator's blocks were not read")
    segments = f" in {holes.segments:,} segments" if holes.segments else ""
    return Row(
        "pinned", "pinned holes", (figure,), f"{units.size(holes.pinned_bytes)}{segments}, free beside live blocks"
    )


def _counts(frame: Optional[DeviceFrame]) -> Row:
    retries = None if frame is None else frame.num_alloc_retries
    ooms = None if frame is None else frame.num_ooms
    cells = (cell("num_alloc_retries", retries, unit="count"), cell("num_ooms", ooms, unit="count"))
    if retries is None or ooms is None:
        return Row("retries", "retries, ooms", cells, f"{units.UNKNOWN} not counted here")
    return Row("retries", "retries, ooms", cells, f"cache given back {_times(retries)}; out of memory {_times(ooms)}")


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count) or f"{count:,} times"


def driver_section(session: Session, device: str, ladder: Ladder, policy: Policy) -> Section:
    """What the driver counts for the process and the device, beside what PyTorch has reserved."""
    host = ladder.is_host
    whose = "the system" if host else "the driver"
    rows = tuple(_host(ladder) if host else _device(session, device, ladder, policy))
    return Section("driver", f"PyTorch against {whose}", rows, _DRIVER)


def _figure(key: str, label: str, value: Optional[int], text: str, kind: Kind = "measured") -> Row:
    return Row(key, label, (cell("", value, kind),), text)


def _host(ladder: Ladder) -> Iterator[Row]:
    yield _figure("process_bytes", "this process", ladder.process_bytes, "resident set size")
    yield _figure("reserved_bytes", "the C library's heap", ladder.reserved_bytes, "tensors and all else")
    text = "programs, libraries, mapped files"
    yield _figure("non_torch_bytes", "outside it", ladder.non_torch_bytes, text, "derived")
    yield _figure("total_bytes", "capacity", ladder.total_bytes, "of the machine, or of the process's limit")


def _device(session: Session, device: str, ladder: Ladder, policy: Policy) -> Iterator[Row]:
    reason = "; ".join(ladder.notes)
    if session.reading(device) is None:
        reason = reason or "the driver told nothing of this device (NVML is not there, or another host's)"
    old = ladder.driver_age_ns
    age = f", {units.duration(abs(old))} before the last frame" if old and abs(old) > policy.stale_driver_ns else ""
    listed = ladder.non_torch_bytes is not None
    process = ladder.process_bytes if listed else None
    yield _figure("process_bytes", "this process", process, f"{ladder.source}{age}" if listed else reason)
    yield _figure("reserved_bytes", "PyTorch reserved", ladder.reserved_bytes, "a part of it" if listed else "")
    text = "process - reserved: context, NCCL, cuBLAS; no leak" if listed else "as above"
    yield _figure("non_torch_bytes", "outside PyTorch", ladder.non_torch_bytes, text, "derived")
    others = ladder.other_process_bytes
    named = ", ".join(f"{each.name or 'process'} {each.pid}" for each in ladder.others[:3])
    yield _figure("other_process_bytes", "other processes", others, named if others is not None else "as above")
    yield _figure("device_free_bytes", "free", ladder.free_bytes, "" if ladder.free_bytes is not None else "as above")
    yield _figure("device_total_bytes", "device", ladder.total_bytes, "")
