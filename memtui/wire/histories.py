"""The messages of an allocator history that a viewer has asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class HistoryNews:
    """How it stands with an allocator history that this viewer has asked for.

    `state` is "waiting" (for a step's end), "recording", "sending", and last "complete" or "refused", with the reason
    as `text`. `figures` are, once it is recorded: step (completed when it began), steps, events, allocations, steps_ns,
    cost_ns (of the training's time, beside what each allocation takes longer), allocated_bytes and reserved_bytes of
    all devices at its end.
    """

    state: str
    text: str = ""
    figures: dict[str, int] = field(default_factory=dict)
    notices: tuple[str, ...] = ()  # what was left out


@dataclass(frozen=True, eq=False)
class HistoryPart:
    """A part of an allocator history: what torch's `_snapshot` holds, without its repetition, in order.

    A row is a dict: the number of its shape, which is its keys, and their values; of "frames" a number of a stack, -1
    for an empty one, and of "blocks" nothing: a segment's blocks are the rows behind it. A stack is numbers of frames.
    Shapes, frames and stacks are numbered from 0 through all parts; each is in the first part that needs it.
    """

    name: str  # of what its rows are: "segments", "trace", or "rest": one row, all else
    device: int = -1  # of a trace
    shapes: tuple[tuple[str, ...], ...] = ()
    frames: tuple[tuple[Any, ...], ...] = ()
    stacks: tuple[tuple[int, ...], ...] = ()
    rows: tuple[Any, ...] = ()
