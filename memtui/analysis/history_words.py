"""What there is to say of an allocator history that was recorded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from memtui.wire.histories import HistoryNews

from .text import clean
from .units import duration, percent, size

_STATES = {
    "waiting": "the next step's history is recorded: waiting for a step to end",
    "recording": "recording the next step's history",
    "sending": "the step is recorded; its history comes a little at a time",
}


def recorded_lines(figures: Mapping[str, int], notices: Sequence[str], path: str, size_bytes: int) -> list[str]:
    """The file, what is in it, what it took, and what was left out; a line each."""
    told = [f"{clean(path, 200)} is written ({size(size_bytes)}): {summary(figures)}"]
    allocated, reserved = figures.get("allocated_bytes"), figures.get("reserved_bytes")
    told.append(f"at its end {size(allocated)} allocated of {size(reserved)} reserved")
    cost_ns, steps_ns = figures.get("cost_ns"), figures.get("steps_ns")
    if cost_ns is not None:
        share = percent(cost_ns, steps_ns)
        told.append(f"switching it on and reading it held the training for {duration(cost_ns)}, {share} of these steps")
    told += [f"note: {clean(notice, 300)}" for notice in notices]
    told.append("memtui open shows it, and so does PyTorch's viewer: https://docs.pytorch.org/memory_viz")
    return told


def history_line(news: HistoryNews) -> str:
    """What the screen says of how it stands."""
    if news.state == "refused":
        return f"no history was recorded: {clean(news.text, 200)}"
    if news.state != "written":
        return _STATES.get(news.state, "recording the next step's history")
    name, figures = clean(os.path.basename(news.text), 100), news.figures
    held = f"; it held the training for {duration(figures.get('cost_ns'))}"
    left_out = "; call stacks were left out" if any(note.startswith("call stacks") for note in news.notices) else ""
    return f"{name} is written ({size(figures.get('size_bytes'))}): {summary(figures)}{held}{left_out}"


def summary(figures: Mapping[str, int]) -> str:
    """The steps and their events: "2 steps of 94.6 ms, 4,926 events"."""
    steps, events = figures.get("steps", 0), figures.get("events")
    told = f"{steps:,} step{'s' * (steps != 1)}"
    if steps and figures.get("steps_ns"):
        told += f" of {duration(figures['steps_ns'] // steps)}"
    return told if events is None else f"{told}, {events:,} events"
