"""One reading of the driver for all ranks of a machine: each gets it as if it had been read for its own process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Optional

from memtui.session.readings import DeviceReading, DriverReading, bare_uuid

from .driver_processes import listed_as

#: Of the driver's pids and ours, as which of them it knows ours.
Find = Callable[[Iterable[int], int], Optional[int]]


def reading_for(
    reading: DriverReading, pid: int, uuids: Optional[Collection[str]], find: Find = listed_as
) -> DriverReading:
    """What the driver said, read for no process at all, as of process `pid`: its bytes, and the others'.

    Only the devices of `uuids`; all where that is None. `find` says as which of its pids the driver knows ours.
    """
    wanted = None if uuids is None else set(map(bare_uuid, uuids))
    devices = tuple(
        _device_for(device, pid, find)
        for device in reading.devices
        if wanted is None or bare_uuid(device.uuid) in wanted
    )
    return replace(reading, devices=devices)


def _device_for(device: DeviceReading, pid: int, find: Find) -> DeviceReading:
    if device.others is None:
        return device
    ours = find([process.pid for process in device.others], pid)
    held = next((process.bytes_held for process in device.others if process.pid == ours), None)
    others = tuple(process for process in device.others if process.pid != ours)
    return replace(device, process_bytes=held, others=others)
