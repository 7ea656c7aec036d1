"""Instants as people write them."""

from __future__ import annotations

import re
from typing import Optional

from memtui.analysis.units import moment

from .errors import SnapshotError
from .timeline import Timeline

_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|µs|ms|s)")
_MICROSECONDS = {"us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000}
_LONGEST_US = 1 << 62


def looks_like_instant(text: str) -> bool:
    """Whether it is written as one: an event's number, a time, or a word for one."""
    return text in {"start", "peak", "end"} or text.isdecimal() or _TIME.fullmatch(text) is not None


def instant_number(text: str, course: Timeline) -> int:
    """The instant after so many events ("1204"), or so long after the first ("1.2s", "300ms"), or start, peak, end.

    Raises SnapshotError where there is none.
    """
    last = course.instants - 1
    words = {"start": 0, "peak": course.peak, "end": last}
    if text in words:
        return words[text]
    if text.isascii() and text.isdecimal():
        number = int(text[:20])
        if number > last:
            raise SnapshotError(f"there is no event {text[:20]}: the last one is {last:,}")
        return number
    found = _TIME.fullmatch(text)
    if found is None:
        raise SnapshotError(f"{text[:40]!r} is no instant: write an event's number, a time as 1.2s, start, peak or end")
    after_us = float(found[1]) * _MICROSECONDS[found[2]]
    asked_us, last_us = int(min(after_us, _LONGEST_US)), course.time_us(last)
    number_at = course.instant_at(asked_us)
    if number_at is None or last_us is None:
        raise SnapshotError("this snapshot's events have no times: name one by its number")
    if asked_us > last_us and moment(asked_us) != moment(last_us):  # the last one's time may have been read rounded
        raise SnapshotError(f"there is no event at {text[:20]}: the last one is at {moment(last_us)}")
    return number_at


def instant_words(number: int, course: Timeline) -> str:
    """Where it is among the events: "event 1,204 of 5,000, at 1.204 s", "the start", "the end"."""
    last = course.instants - 1
    if number == last:
        return "the end"
    if number == 0:
        return "the start"
    return f"event {number:,} of {last:,}{time_words(course.time_us(number))}"


def place_words(number: int, course: Timeline) -> str:
    """As `instant_words`, and "the peak" where that is; without events there is only the end."""
    return "the peak" if number == course.peak and course.instants > 1 else instant_words(number, course)


def time_words(time_us: Optional[int]) -> str:
    """The time since the first event, as it follows something else; nothing where it is not known."""
    return "" if time_us is None else f", at {moment(time_us)}"
