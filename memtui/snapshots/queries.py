"""Questions to a snapshot: by stack, by category, the largest, out of memory, what is different."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Optional

from .instant import Instant, Live, frames_of, instant, largest_free_bytes
from .model import Device, Snapshot
from .stacks import CATEGORIES, Stack, Stacks
from .timeline import Timeline, timeline


class Group(NamedTuple):
    """Live blocks that have something in common."""

    name: str
    size_bytes: int
    blocks: int
    stack: Stack  # that of the largest of them


class Difference(NamedTuple):
    """What is live at one place of a program at two instants; `name` is its folded stack or its line."""

    name: str
    before_bytes: int
    after_bytes: int
    before_blocks: int
    after_blocks: int

    @property
    def change_bytes(self) -> int:
        """More, or below 0 less, than before."""
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True)
class OutOfMemory:
    """A request that failed, and what there was then; the first event is 1.

    `device_free_bytes` is the driver's figure, None where it is not told.
    """

    event: int
    time_us: Optional[int]
    requested_bytes: int
    device_free_bytes: Optional[int]
    allocated_bytes: int
    reserved_bytes: int
    largest_free_bytes: int
    stack: Stack


class Opened:
    """One device of a snapshot with its timeline, that answers; each answer is made when it is asked for."""

    def __init__(self, snapshot: Snapshot, device: Device) -> None:
        self.snapshot, self.device = snapshot, device
        self.course: Timeline = timeline(device)
        self._stacks = Stacks()
        self._instants: dict[int, Instant] = {}

    @property
    def notices(self) -> tuple[str, ...]:
        """What is odd about this device's events."""
        return self.course.notices

    def at(self, number: Optional[int] = None) -> Instant:
        """What was live at an instant; without one, at the peak. The last few that were asked for are kept."""
        number = self.course.peak if number is None else number
        found = self._instants.get(number)
        if found is None:
            if len(self._instants) >= 4:
                del self._instants[next(iter(self._instants))]
            found = self._instants[number] = instant(self.device, self.course, number, self._stacks)
        return found

    def end(self) -> Instant:
        """What was live when the snapshot was taken."""
        return self.at(self.course.instants - 1)

    def out_of_memory(self) -> list[OutOfMemory]:
        """Requests that failed, in their order, each with the instant replayed."""
        return [self.out_of_memory_at(place) for place in self.course.told.places("oom")]

    def out_of_memory_at(self, place: int) -> OutOfMemory:
        """The request that failed at this place of the trace, the first being 0; some 0.1 µs an event."""
        event = self.device.trace[place]
        free = event.get("device_free")
        return OutOfMemory(
            place + 1,
            self.course.time_us(place + 1),
            self.course.told.sizes_bytes[place],
            free if isinstance(free, int) and free >= 0 else None,
            self.course.allocated_bytes[place],
            self.course.reserved_bytes[place],
            largest_free_bytes(self.device, self.course, place),
            self._stacks.stack(frames_of(event)),
        )


def by_site(live: Iterable[Live]) -> list[Group]:
    """By the line of the program, the most memory first."""
    return _grouped(live, lambda each: each.stack.site)


def by_stack(live: Iterable[Live]) -> list[Group]:
    """By the whole stack, named as it is folded."""
    return _grouped(live, lambda each: each.stack.folded)


def by_category(live: Iterable[Live]) -> list[Group]:
    """By what a stack tells of the purpose, in the order of CATEGORIES; those that hold nothing are left out."""
    found = {group.name: group for group in _grouped(live, lambda each: each.stack.category)}
    return [found[name] for name in CATEGORIES if name in found]


def folded(at: Instant) -> list[tuple[str, int]]:
    """Stacks from the outermost frame, joined by ";", and bytes: the lines of a flame graph; a rest is none of them."""
    return [(group.name, group.size_bytes) for group in by_stack(at.live)]


def difference(before: Instant, after: Instant, *, whole_stacks: bool = False) -> list[Difference]:
    """By line, or by whole stack, what is live at two instants; the largest change first, and no equal ones."""
    group = by_stack if whole_stacks else by_site
    old = {each.name: each for each in group(before.live)}
    new = {each.name: each for each in group(after.live)}
    found = []
    for name in {**old, **new}:
        was, now = old.get(name), new.get(name)
        found.append(
            Difference(
                name,
                was.size_bytes if was else 0,
                now.size_bytes if now else 0,
                was.blocks if was else 0,
                now.blocks if now else 0,
            )
        )
    changed = [each for each in found if each.change_bytes or each.before_blocks != each.after_blocks]
    return sorted(changed, key=lambda each: (-abs(each.change_bytes), each.name))


def _grouped(live: Iterable[Live], key: Callable[[Live], str]) -> list[Group]:
    members: dict[str, list[Live]] = {}
    for each in live:
        members.setdefault(key(each), []).append(each)
    groups = [
        Group(name, sum(each.size_bytes for each in those), len(those), those[0].stack)
        for name, those in members.items()
    ]
    return sorted(groups, key=lambda group: (-group.size_bytes, group.name))
