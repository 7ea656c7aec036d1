"""What was allocated and reserved after each event of a trace.

A trace tells what changed; what there was is known at its end, from the segments. So the beginning is what is left when
all changes are taken back, also where older events were dropped. A trace has the sizes that were asked for, and the end
the allocator's, which are rounded up: a figure is derived, and off by at most the rounding of what came or went since.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Optional

from memtui.analysis.text import clean
from memtui.analysis.units import size

from .columns import Columns, columns
from .errors import SnapshotError
from .model import Device

_RESERVED = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
#: What a program has given back is the allocator's at once, though another stream may still use it.
_FREED = ("free_requested", "free", "free_completed")
KNOWN = frozenset(("alloc", *_FREED, *_RESERVED, "oom", "snapshot", "user_defined"))


@dataclass(frozen=True)
class Timeline:
    """Figures at each instant; instant k is after k events, so there is one more of them than events."""

    told: Columns
    allocated_bytes: Sequence[int]
    reserved_bytes: Sequence[int]
    peak: int  # the first instant at which most was allocated
    freed: str  # the action that ends an allocation
    notices: tuple[str, ...]

    @property
    def instants(self) -> int:
        """How many there are."""
        return len(self.allocated_bytes)

    @property
    def peak_bytes(self) -> int:
        """The most that was allocated while the events were recorded."""
        return self.allocated_bytes[self.peak]

    def time_us(self, instant: int) -> Optional[int]:
        """Microseconds from the first event to that which led to an instant; None where there are no times."""
        if self.told.times_us is None or not len(self.told.times_us):
            return None
        return self.told.times_us[max(instant - 1, 0)] - self.told.times_us[0]

    def instant_at(self, time_us: int) -> Optional[int]:
        """The last instant not later than `time_us` after the first event; None where there are no times."""
        if self.told.times_us is None or not len(self.told.times_us):
            return None
        return bisect.bisect_right(self.told.times_us, self.told.times_us[0] + time_us)


def timeline(device: Device) -> Timeline:
    """Replays a device's trace; some 0.5 µs and 41 bytes an event. Raises SnapshotError where an event is damaged."""
    told = columns(device)
    freed = next((each for each in _FREED if each in told.names), _FREED[0])
    allocated = _allocated(told, freed, device.allocated_bytes)
    reserved = _reserved(told, device.reserved_bytes)
    notices = [*_unknown(told, device), *_impossible(min(allocated), "allocated", device)]
    notices += _impossible(min(reserved), "reserved", device)
    peak = allocated.index(max(allocated))
    return Timeline(told, _figures(allocated), _figures(reserved), peak, freed, tuple(notices))


def _allocated(told: Columns, freed: str, end_bytes: int) -> list[int]:
    signs = {"alloc": 1, freed: -1}
    sign = [signs.get(name, 0) for name in told.names]
    changes = list(map(mul, map(sign.__getitem__, told.actions), told.sizes_bytes))
    return list(accumulate(changes, initial=end_bytes - sum(changes)))


def _reserved(told: Columns, end_bytes: int) -> list[int]:
    """It changes seldom, so it is made of stretches."""
    changes = sorted(
        (place, sign * told.sizes_bytes[place]) for name, sign in _RESERVED.items() for place in told.places(name)
    )
    figure = end_bytes - sum(change for _, change in changes)
    found: list[int] = []
    for place, change in changes:
        found += [figure] * (place + 1 - len(found))
        figure += change
    return found + [figure] * (len(told.actions) + 1 - len(found))


def _figures(figures: Iterable[int]) -> array[int]:
    try:
        return array("q", figures)
    except OverflowError:
        raise SnapshotError("the sizes of the events add up to more than any memory: the snapshot is damaged") from None


def _unknown(told: Columns, device: Device) -> list[str]:
    strange = [name for name in told.names if name not in KNOWN]
    if not strange:
        return []
    words = ", ".join(f"{told.count(name):,} of {clean(name, 40)!r}" for name in strange[:5])
    return [f"{device.name}: events that this memtui does not know are left out: {words}"]


def _impossible(least: int, what: str, device: Device) -> list[str]:
    if least >= 0:
        return []
    end = device.allocated_bytes if what == "allocated" else device.reserved_bytes
    return [
        f"{device.name}: the events and the segments disagree: {size(end)} {what} at the end, less what the events "
        f"add, is {size(-least)} below nothing"
    ]
