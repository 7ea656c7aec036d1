"""One out-of-memory message: its figures as they were printed, and what they mean in the format it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Optional

from .interval import NOTHING, Interval, Printed

#: "brackets": PyTorch up to 2.0 and what was made from it; "sentences": since 2.1; "async": cudaMallocAsync; "metal":
#: Apple's; "block limit": an Intel platform's; "host": no device's; "bare": no figures at all.
Format = Literal["brackets", "sentences", "async", "metal", "block limit", "host", "more than can be", "bare"]

#: What each figure means; "cached" is of PyTorch 1.0 to 1.4 and does not contain what is allocated.
MEANING: Mapping[str, str] = {
    "tried": "what the allocator asked the driver for: the request, rounded up to a segment",
    "total": "the device's capacity",
    "free": "free on the device, by the driver, after PyTorch had given back every whole free segment",
    "allocated": "live tensors, and what CUDA graphs' private pools hold free",
    "cached": "held by PyTorch's allocator and in no tensor (not the whole of what it holds)",
    "reserved": "all that PyTorch's allocator holds, live or not",
    "unallocated": "held by PyTorch's allocator and in no tensor",
    "private": "free inside the private pools of CUDA graphs, contained in allocated",
    "allowed": "the cap of this process",
    "in_use": "all that this process holds, by the driver: context and libraries too",
    "other": "of this process, outside PyTorch's allocator",
    "active": "live tensors, and what waits to be freed",
}


@dataclass(frozen=True)
class Listed:
    """A process that the message names with what it holds."""

    pid: int
    size: Printed


@dataclass(frozen=True)
class Message:
    """The figures by the names of MEANING; a name is absent where the message does not have it."""

    format: Format
    backend: str
    device: Optional[int] = None
    figures: Mapping[str, Printed] = field(default_factory=dict)
    processes: tuple[Listed, ...] = ()
    complete: bool = True  # not cut off in the middle
    expandable_hint: bool = False  # it says that expandable segments may help: they are off
    complaint: str = ""  # of a bare message: which of them it is

    def interval(self, name: str) -> Optional[Interval]:
        """A figure's bytes; None where it is absent or not available."""
        printed = self.figures.get(name)
        return None if printed is None else printed.interval

    @property
    def not_available(self) -> tuple[str, ...]:
        """Figures that the driver does not know and that are printed as 2^64."""
        names = [name for name, printed in self.figures.items() if printed.interval is None]
        return (*names, *(f"process {each.pid}" for each in self.processes if each.size.interval is None))

    @property
    def reserved(self) -> Optional[Interval]:
        """All that PyTorch's allocator holds."""
        known = self.interval("reserved")
        allocated, idle = self.interval("allocated"), self.idle
        if known is not None or allocated is None or idle is None:
            return known
        return allocated + idle

    @property
    def idle(self) -> Optional[Interval]:
        """Held by the allocator and in no tensor."""
        if self.format == "async":
            # The driver keeps that pool, and maps what is free in it anew for whoever asks.
            return NOTHING
        printed = self.interval("unallocated") or self.interval("cached")
        reserved, allocated = self.interval("reserved"), self.interval("allocated")
        if printed is not None or reserved is None or allocated is None:
            return printed
        return (reserved - allocated).at_least_nothing()
