"""A step as it was recorded: plain data, taken on the training's thread and read on the agent's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

from .names import Owners


class Count(NamedTuple):
    """One device's counters at a boundary: allocations and frees so far, bytes now, the highest so far."""

    events: int
    allocated_bytes: int
    peak_bytes: int


@dataclass
class Boundary:
    """A phase begins. `counts` is by device, empty where it was only noted; `owners` None where nothing was walked."""

    time_ns: int
    phase: str
    counts: dict[int, Count] = field(default_factory=dict)
    owners: Optional[Owners] = None


#: (file, function, first line, last line) of code that is a module's forward.
Span = tuple[str, str, int, int]


@dataclass
class Submodules:
    """The submodules of a step and their calls: (monotonic nanoseconds, place in `names`), in order."""

    names: tuple[str, ...] = ()
    parents: tuple[int, ...] = ()  # places, -1 for a root
    spans: tuple[Optional[Span], ...] = ()
    calls: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Recording:
    """Everything that was taken of one step. The first boundary is its beginning, the last its end."""

    step: int
    wall_offset_ns: int  # torch's clock = monotonic + this
    max_entries: int
    devices: tuple[int, ...]
    boundaries: list[Boundary]
    before: dict[str, Any]  # torch's snapshot of the beginning
    workspaces: frozenset[int] = frozenset()
    buckets: frozenset[int] = frozenset()  # sizes that DDP's buckets were asked for with
    known: dict[int, dict[int, tuple[int, str]]] = field(default_factory=dict)  # device -> address -> bytes, category
    after: dict[str, Any] = field(default_factory=dict)  # of the end, with the history
    submodules: Submodules = field(default_factory=Submodules)
    notices: list[str] = field(default_factory=list)
    cost_ns: int = 0
