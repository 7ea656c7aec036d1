"""What a recorded step asks for, in order, whatever the sizes: steps can only be compared where that is the same."""

from __future__ import annotations

from memtui.session.steps import step_number
from memtui.wire.frames import RecordedStep

#: Of one event: call site and stream of what it allocates, and by which event what it frees was made.
Event = tuple[object, ...]
#: Blocks of no more than this that are gone after so many events are left out: sums over many numbers are taken in two
#: stages from some size on, and the small blocks between them say nothing of the peak.
_SMALL_BYTES, _BRIEF_EVENTS = 64 << 10, 8


def sequence(recorded: RecordedStep) -> tuple[Event, ...]:
    """The events of a step without their sizes."""
    found: list[list[object]] = [[] for _ in recorded.event_us]
    streams = recorded.heap.streams if recorded.heap is not None else ()
    counted = set(_made(recorded))
    kept = sorted(recorded.blocks[number][0] for number in counted)
    order = {born: place for place, born in enumerate(kept)}
    for number, (born, died, _, _, _, site, _) in enumerate(recorded.blocks):
        if number in counted:
            where = recorded.sites[site] if 0 <= site < len(recorded.sites) else ""
            found[born].append((where, streams[number] if streams else 0))
        if died >= 0 and (born < 0 or number in counted):
            found[died].append(order.get(born, -1))
    return tuple(tuple(event) for event in found if event)


def sizes(recorded: RecordedStep) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The blocks that a step makes, by their numbers, and the bytes asked for them, both in order of the events."""
    assert recorded.heap is not None
    asked, numbers = recorded.heap.asked_bytes, _made(recorded)
    return numbers, tuple(asked[number] or recorded.blocks[number][2] for number in numbers)


def _made(recorded: RecordedStep) -> tuple[int, ...]:
    """The blocks that count, in order of the events."""
    made = sorted((row[0], number) for number, row in enumerate(recorded.blocks) if row[0] >= 0)
    return tuple(number for _, number in made if not _passing(recorded.blocks[number]))


def _passing(row: tuple[int, ...]) -> bool:
    born, died, size, *_ = row
    return size <= _SMALL_BYTES and 0 <= died <= born + _BRIEF_EVENTS


def difference(one: RecordedStep, other: RecordedStep) -> str:
    """Where two steps part, in words; empty where they do not."""
    first, second = sequence(one), sequence(other)
    if first == second:
        return ""
    parted = next((place for place, (a, b) in enumerate(zip(first, second)) if a != b), min(len(first), len(second)))
    steps = " and ".join(f"{step_number(each.step):,}" for each in (one, other))
    return (
        f"steps {steps} differ in more than sizes: {len(first):,} and {len(second):,} allocations and frees, "
        f"the first that differs is number {parted + 1:,}"
    )
