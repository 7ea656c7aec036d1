"""A trace as columns: what each event did, where, of what size and when."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Optional

from .errors import SnapshotError
from .model import Device, Event

#: Events are spread over memory; so many at once stay near the processor while all is taken out of them.
_AT_ONCE = 512


@dataclass(frozen=True)
class Columns:
    """One entry an event, 25 bytes; `actions` are places in `names`, and `times_us`, since 1970, None without times.

    The address of an event that has none is 0.
    """

    names: tuple[str, ...]
    actions: bytes
    sizes_bytes: Sequence[int]
    addresses: Sequence[int]
    times_us: Optional[Sequence[int]]

    def code(self, name: str) -> int:
        """The place of an action in `names`, -1 where no event has it."""
        return self.names.index(name) if name in self.names else -1

    def count(self, name: str) -> int:
        """How many events did it."""
        return self.actions.count(self.code(name)) if name in self.names else 0

    def places(self, name: str) -> list[int]:
        """The numbers of the events that did it."""
        code, found = self.code(name), []
        place = self.actions.find(code) if code >= 0 else -1
        while place >= 0:
            found.append(place)
            place = self.actions.find(code, place + 1)
        return found


class _Codes(dict[str, int]):
    def __missing__(self, action: str) -> int:
        if not isinstance(action, str):
            raise TypeError
        self[action] = len(self)
        return self[action]


def columns(device: Device) -> Columns:
    """Those of a device's trace; some 0.3 µs an event. Raises SnapshotError where one is damaged."""
    trace = device.trace
    codes = _Codes()
    actions, sizes, addresses, times = bytearray(), array("Q"), array("Q"), array("Q")
    timed = bool(trace) and isinstance(trace[0], dict) and "time_us" in trace[0]  # torch before 2.1 told none
    try:
        for begin in range(0, len(trace), _AT_ONCE):
            part = trace[begin : begin + _AT_ONCE]
            actions.extend(map(codes.__getitem__, map(itemgetter("action"), part)))
            sizes.extend(map(itemgetter("size"), part))
            addresses.extend(_addresses(part))
            if timed:
                times.extend(map(itemgetter("time_us"), part))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        raise SnapshotError(f"{device.name}: {_first_damaged(trace)}") from None
    return Columns(tuple(codes), bytes(actions), sizes, addresses, times if timed else None)


def _addresses(part: Sequence[Event]) -> array[int]:
    try:
        return array("Q", map(itemgetter("addr"), part))
    except KeyError:  # what failed for want of memory has none
        return array("Q", [event.get("addr", 0) for event in part])


def _first_damaged(trace: Sequence[Event]) -> str:
    for number, event in enumerate(trace):
        if not isinstance(event, dict):
            return f"the snapshot is damaged: event {number:,} is no dict"
        if not isinstance(event.get("action"), str):
            return f"the snapshot is damaged: event {number:,} has no action"
        for key, missing in (("size", -1), ("addr", 0), ("time_us", 0)):
            value = event.get(key, missing)
            if not isinstance(value, int) or not 0 <= value < 1 << 64:
                return f"the snapshot is damaged: event {number:,} has no {key}, or one that cannot be"
    return "the snapshot is damaged: some of its events have a time, and others have none"
