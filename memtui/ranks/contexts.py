"""Who is on whose device: contexts that a rank left on another's, and devices that two ranks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

from memtui.analysis import units
from memtui.analysis.text import clean
from memtui.session.members import Member
from memtui.session.readings import DeviceReading, bare_uuid

from .finding import Finding
from .row import RankRow
from .words import bare, ranks

#: Of a rank whose own tensors are there; and of one that only has a context there.
_TENSORS = "with tensors in it: torch.cuda.set_device(local_rank) comes after the first CUDA call"
_BARE = "torch.cuda.set_device(local_rank) is not called before the first CUDA call; or a library's thread runs there"


def context_findings(
    rows: Sequence[RankRow], members: Mapping[int, Member], readings: Sequence[DeviceReading] = ()
) -> list[Finding]:
    """Of ranks that live; `members` by rank. `readings` are the driver's, of all devices; without, torch's own say."""
    owners: dict[str, list[RankRow]] = {}
    for row in rows:
        if row.uuid and not row.over and row.phase not in ("", "startup"):  # until then its device may not be set
            owners.setdefault(bare_uuid(row.uuid), []).append(row)
    by_uuid = {bare_uuid(reading.uuid): reading for reading in readings}
    working = [row for own in owners.values() for row in own]
    found = []
    for uuid, own in owners.items():
        foreign = [
            each
            for row in working
            if bare_uuid(row.uuid) != uuid
            for each in [_foreign(uuid, row, members[row.rank], by_uuid.get(uuid))]
            if each is not None
        ]
        for tensors in (True, False):
            alike = [each for each in foreign if each.tensors is tensors]
            if alike:
                found.append(_foreign_finding(own, alike))
        if len(own) > 1:
            found.append(_shared_finding(own, len(owners)))
    return found


class _Foreign(NamedTuple):
    """What a rank has on another's device: bytes by the driver, else by torch; `tensors` if its allocator has any."""

    rank: int
    held_bytes: Optional[int]
    tensors: bool


def _foreign(uuid: str, row: RankRow, member: Member, reading: Optional[DeviceReading]) -> Optional[_Foreign]:
    processes = () if reading is None else reading.others or ()
    listed = next((process for process in processes if process.pid == row.pid), None)
    hello = member.session.hello
    reserved: Optional[int] = None
    for device in hello.devices if hello is not None else ():
        if device.uuid is not None and bare_uuid(device.uuid) == uuid:
            frame = member.session.device_frame(device.device)
            reserved = None if frame is None else frame.reserved_bytes
    if listed is None and not reserved:
        return None
    return _Foreign(row.rank, reserved if listed is None else listed.bytes_held, bool(reserved))


def _foreign_finding(own: Sequence[RankRow], foreign: Sequence[_Foreign]) -> Finding:
    numbers = sorted(each.rank for each in foreign)
    held = [each.held_bytes for each in foreign if each.held_bytes is not None]
    size = f", {units.size(sum(held))}" if held else ""
    count = "1 foreign context" if len(numbers) == 1 else f"{len(numbers)} foreign contexts"
    where = f"{place_of(own[0])}, the device of {ranks(row.rank for row in own)}"
    tensors = foreign[0].tensors
    text = f"{count} on {where} ({ranks(numbers)}{size}): {_TENSORS if tensors else _BARE}"
    return Finding("tensors elsewhere" if tensors else "contexts", "warning", tuple(numbers), text)


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
