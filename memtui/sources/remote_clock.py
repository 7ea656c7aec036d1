"""Another machine's monotonic clock beside this one's, and messages with their instants moved to it."""

from __future__ import annotations

import bisect
from dataclasses import replace
from typing import Any

from memtui.session.readings import DriverReading, HostReading
from memtui.wire.codec import CodecError
from memtui.wire.frames import (
    BackwardGraph,
    Bye,
    Event,
    Frame,
    Hello,
    Model,
    RecordedStep,
    Segments,
    Tensors,
    made,
)

#: An estimate that is better by so much is worth a seam in the charts.
_BETTER_NS = 5_000_000
#: A new offset holds for what is yet to come: what was seen already keeps its instant, however often it is sent.
_AHEAD_NS = 1_000_000_000
_LARGEST_NS = 1 << 62

#: Fields that are instants, by message; every other `*_ns` is a length of time.
INSTANTS: dict[type, tuple[str, ...]] = {
    Hello: ("time_ns", "started_ns"),
    Frame: ("time_ns", "phase_since_ns", "step_since_ns"),
    Event: ("time_ns",),
    Model: ("time_ns",),
    RecordedStep: ("time_ns",),
    BackwardGraph: ("time_ns",),
    Tensors: ("time_ns",),
    Segments: ("time_ns",),
    Bye: ("time_ns",),
}


class Clock:
    """Offsets to this machine's clock, each from some instant there on. Within half a round trip of the truth."""

    def __init__(self) -> None:
        self._from: list[int] = []
        self._offsets: list[int] = []
        self._error_ns = _LARGEST_NS
        self._settled = False

    @property
    def known(self) -> bool:
        """Whether there is an estimate."""
        return bool(self._offsets)

    @property
    def error_ns(self) -> int:
        """How far off it may be."""
        return self._error_ns

    def sample(self, sent_ns: int, there_ns: int, received_ns: int) -> None:
        """Takes a ping in: when it was sent, what time it was there, and when the answer came."""
        offset, error = (sent_ns + received_ns) // 2 - there_ns, (received_ns - sent_ns) // 2 + 1
        if not self._offsets:
            self._from, self._offsets, self._error_ns = [-_LARGEST_NS], [offset], error
            return
        apart = abs(offset - self._offsets[-1])
        if not self._settled:
            if error < self._error_ns:
                self._offsets, self._error_ns = [offset], error
        elif apart > error + self._error_ns or error + _BETTER_NS < self._error_ns:
            self._from.append(max(there_ns + _AHEAD_NS, self._from[-1] + 1))
            self._offsets.append(offset)
            self._error_ns = error

    def settle(self) -> None:
        """The first pings are over: what is moved from now on stays where it is."""
        self._settled = True

    def here_ns(self, there_ns: int) -> int:
        """An instant of that machine on this one's clock; raises CodecError for one that is nobody's."""
        place = bisect.bisect_right(self._from, there_ns) - 1
        moved = there_ns + self._offsets[max(0, place)]
        if abs(there_ns) >= _LARGEST_NS or abs(moved) >= _LARGEST_NS:
            raise CodecError(f"an instant of {there_ns} ns")
        return moved

    def moved(self, message: Any) -> Any:
        """A message of an agent there, with its instants on this machine's clock; raises CodecError."""
        names = INSTANTS.get(type(message))
        if names is None:
            return message
        values = dict(message.__dict__)
        for name in names:
            if values.get(name) is not None:
                values[name] = self.here_ns(values[name])
        if isinstance(message, Hello):
            # The wall clock there stays what it is.
            values["wall_offset_ns"] = message.wall_offset_ns + message.time_ns - values["time_ns"]
        elif isinstance(message, BackwardGraph):
            values["forward"] = tuple(self.moved(step) for step in message.forward)
        return made(type(message), values)

    def moved_reading(self, reading: HostReading) -> HostReading:
        """The same of what the system there says."""
        return replace(reading, time_ns=self.here_ns(reading.time_ns))

    def moved_driver(self, reading: DriverReading) -> DriverReading:
        """The same of what the driver there says."""
        devices = tuple(replace(device, time_ns=self.here_ns(device.time_ns)) for device in reading.devices)
        return replace(reading, time_ns=self.here_ns(reading.time_ns), devices=devices)
