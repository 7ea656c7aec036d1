"""Who is on whose device: contexts that a rank left on another's, and devices that two ranks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from memtui.analysis import units
from memtui.analysis.text import clean
from memtui.session.members import Member
from memtui.session.readings import DeviceReading
from memtui.session.session import bare_uuid

from .finding import Finding
from .row import RankRow
from .words import bare, ranks

_REMEDY = "torch.cuda.set_device(local_rank) is not called before the first CUDA call"


def context_findings(
    rows: Sequence[RankRow], members: Mapping[int, Member], readings: Sequence[DeviceReading] = ()
) -> list[Finding]:
    """Of ranks that live; `members` by rank. `readings` are the driver's, of all devices; without, torch's own say."""
    owners: dict[str, list[RankRow]] = {}
    for row in rows:
        if row.uuid and not row.over and row.phase not in ("", "startup"):  # until then its device may not be set
            owners.setdefault(bare_uuid(row.uuid), []).append(row)
    by_uuid = {bare_uuid(reading.uuid): reading for reading in readings}
    found = []
    for uuid, own in owners.items():
        foreign = _foreign(uuid, rows, members, by_uuid.get(uuid))
        if foreign:
            found.append(_foreign_finding(own, foreign))
        if len(own) > 1:
            found.append(_shared_finding(own, len(owners)))
    return found


def _foreign(
    uuid: str, rows: Sequence[RankRow], members: Mapping[int, Member], reading: Optional[DeviceReading]
) -> dict[int, Optional[int]]:
    """Bytes by rank that others have on this device."""
    listed = {} if reading is None else {process.pid: process.bytes_held for process in reading.others or ()}
    found: dict[int, Optional[int]] = {}
    for row in rows:
        if row.over or not row.uuid or bare_uuid(row.uuid) == uuid:
            continue
        if row.pid in listed:
            found[row.rank] = listed[row.pid]
            continue
        hello = members[row.rank].session.hello
        for device in hello.devices if hello is not None else ():
            if device.uuid is not None and bare_uuid(device.uuid) == uuid:
                frame = members[row.rank].session.device_frame(device.device)
                found[row.rank] = None if frame is None else frame.reserved_bytes
    return found


def _foreign_finding(own: Sequence[RankRow], foreign: Mapping[int, Optional[int]]) -> Finding:
    numbers = sorted(foreign)
    held = [value for value in foreign.values() if value is not None]
    size = f", {units.size(sum(held))}" if held else ""
    count = "1 foreign context" if len(numbers) == 1 else f"{len(numbers)} foreign contexts"
    where = f"{place_of(own[0])}, the device of {ranks(row.rank for row in own)}"
    return Finding("contexts", "warning", tuple(numbers), f"{count} on {where} ({ranks(numbers)}{size}): {_REMEDY}")


def _shared_finding(own: Sequence[RankRow], devices: int) -> Finding:
    numbers = sorted(row.rank for row in own)
    held = [row.used.value for row in own if row.used.value is not None]
    full = f", {units.size(max(held))} in use" if held else ""
    whose = f"ranks {bare(numbers)} share {place_of(own[0])}{full}"
    local = sorted({row.local_rank for row in own if row.local_rank is not None})
    if devices == 1 and len(local) > 1:
        why = "set_device(local_rank) is missing, or CUDA_VISIBLE_DEVICES shows all ranks the same device"
    else:
        why = "both call set_device with the same number, or CUDA_VISIBLE_DEVICES gives both the same device"
    return Finding("shared", "warning", tuple(numbers), f"{whose}: {why}")


def place_of(row: RankRow) -> str:
    """A device, as torch names it in the rank whose it is."""
    return clean(row.device, 40)
