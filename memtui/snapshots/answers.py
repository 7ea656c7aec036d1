"""All that a screen shows of a snapshot: of the whole once, and of an instant each time that one is looked at."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Optional

from memtui.analysis.text import clean
from memtui.analysis.units import percent, size

from .flames import Flame, flame
from .instant import Instant, largest_free_bytes
from .moments import instant_words
from .pyramid import Pyramid
from .queries import Difference, Group, Opened, OutOfMemory, by_category, by_site, difference


@dataclass(frozen=True, eq=False)
class Mark:
    """An instant that others are compared with, of this snapshot or of another one."""

    opened: Opened
    number: int
    words: str


@dataclass(frozen=True, eq=False)
class Overview:
    """One device of a snapshot, ready to be drawn at any zoom.

    `peak` and `below` are sentences, the longest of each first; `failures` are the instants of failed requests, in
    their order.
    """

    opened: Opened
    allocated: Pyramid
    reserved: Pyramid
    top_bytes: int  # the most that was allocated or reserved
    failures: tuple[int, ...]
    peak: tuple[str, ...]
    below: tuple[str, ...]
    name: str
    notices: tuple[str, ...]

    @property
    def last(self) -> int:
        """The instant at which the snapshot was taken."""
        return self.opened.course.instants - 1


@dataclass(frozen=True, eq=False)
class Answer:
    """What was there at one instant; `changes` is since `mark`, None without one; `failed` a request that failed."""

    at: Instant
    sites: tuple[Group, ...]
    categories: tuple[Group, ...]
    flame: Flame
    failed: Optional[OutOfMemory]
    mark: Optional[Mark]
    changes: Optional[tuple[Difference, ...]]


def overview(opened: Opened) -> Overview:
    """Some 0.7 µs an event."""
    course = opened.course
    failures = tuple(place + 1 for place in course.told.places("oom"))
    most_reserved = max(course.reserved_bytes)
    name = f"{clean(os.path.basename(opened.snapshot.path), 60)} · {opened.device.name}"
    return Overview(
        opened,
        Pyramid(course.allocated_bytes),
        Pyramid(course.reserved_bytes),
        max(course.peak_bytes, most_reserved, 1),
        failures,
        _peak(opened),
        _below(opened, failures),
        name,
        (*opened.snapshot.notices, *opened.notices),
    )


def answer(opened: Opened, number: int, mark: Optional[Mark] = None) -> Answer:
    """What was there at an instant; some 0.1 µs an event."""
    at = opened.at(number)
    failed = number > 0 and opened.device.trace[number - 1]["action"] == "oom"
    return Answer(
        at,
        tuple(by_site(at.live)),
        tuple(by_category(at.live)),
        flame(at),
        opened.out_of_memory_at(number - 1) if failed else None,
        mark,
        None if mark is None else tuple(difference(mark.opened.at(mark.number), at)),
    )


def made_of(at: Instant, named: int = 3) -> str:
    """The largest categories: "75 % before the recording, 25 % forward"."""
    largest = sorted(by_category(at.live), key=lambda group: -group.size_bytes)[:named]
    return ", ".join(f"{percent(group.size_bytes, at.allocated_bytes)} {group.name}" for group in largest)


def _peak(opened: Opened) -> tuple[str, ...]:
    course = opened.course
    if course.instants == 1:
        words = f"{size(course.peak_bytes)} allocated when the snapshot was taken; no events were recorded"
    else:
        words = f"peak {size(course.peak_bytes)} allocated at {instant_words(course.peak, course)}"
    at = opened.at(course.peak)
    return (*(f"{words}: {made_of(at, named)}" for named in (3, 2, 1)), words)


def _below(opened: Opened, failures: tuple[int, ...]) -> tuple[str, ...]:
    course, device, count = opened.course, opened.device, len(failures)
    # Where requests failed, the last one's instant is asked about, and it need not be the peak.
    number = failures[-1] if failures else course.peak
    there = f"{size(course.reserved_bytes[number])} reserved then"
    free = f"largest free block {size(largest_free_bytes(device, course, number))}"
    last = course.instants - 1
    end = "" if course.peak == last else f"at the end {size(course.allocated_bytes[last])} allocated"
    failed = f"out of memory: {count:,} request{'s' * (count != 1)} failed" if failures else ""
    if count > 1:
        failed += f", the last at {instant_words(number, course)}"
    if last and not failures:
        failed = "never out of memory"
    found = []
    for parts in ((failed, there, free, end), (failed, there, free), (failed, there), (failed or there,)):
        words = "; ".join(part for part in parts if part)
        if words not in found:
            found.append(words)
    return tuple(found)
