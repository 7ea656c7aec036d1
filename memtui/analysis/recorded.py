"""A recorded step as a timeline: bytes by category after each of its events."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple, Optional

from memtui.wire.frames import CATEGORIES, RecordedStep

from .text import clean

#: Between two compositions that are kept; the others are counted on from the one before.
_KEPT_EVERY = 1024
_REST = "unattributed"


class Block(NamedTuple):
    """A piece of memory and the events between which it was allocated.

    `born` is -1 for what was there before the step, `died` None for what was still there after it; `category` is a
    place in the timeline's categories, `module` one in its modules, the others are places in the recorded step's own
    lists, -1 where unknown.
    """

    born: int
    died: Optional[int]
    size_bytes: int
    category: int
    name: int
    site: int
    module: int


class Column(NamedTuple):
    """What one column of a picture shows: the instant at which most was allocated, and the bytes by category then."""

    instant: int
    composition: tuple[int, ...]


class StepTimeline:
    """The bytes by category at every instant of a recorded step: instant 0 is its beginning, instant n after n events.

    What was allocated at the beginning and is in no block is unattributed, all the time. Made in some 2 µs an event.
    """

    def __init__(self, recorded: RecordedStep) -> None:
        self.recorded = recorded
        self.last = len(recorded.event_us)  # the last instant
        found = tuple(clean(name, 40) for name in recorded.categories)
        self.categories = (*CATEGORIES, *(name for name in dict.fromkeys(found) if name not in CATEGORIES))
        self._rest_place = self.categories.index(_REST)
        self._places = [self.categories.index(name) for name in found]
        #: Those that were sent, and those that tensors' names speak of.
        self.modules = recorded.modules
        self._owners = self._modules_of_names()
        self.blocks = tuple(block for row in recorded.blocks if (block := self._block(row)) is not None)
        #: Allocated when the step began, in no block; negative where the blocks are more than was counted.
        self.rest_bytes = recorded.before_bytes - sum(block.size_bytes for block in self.blocks if block.born < 0)
        self._count()
        self.peak = max(range(self.last + 1), key=self.totals.__getitem__)
        self._marks = sorted((mark.event, mark.phase) for mark in recorded.marks)

    def _modules_of_names(self) -> list[int]:
        """The module of each name: "layers.0" of "layers.0.weight (gradient)"."""
        modules = list(self.modules)
        places = {name: place for place, name in enumerate(modules)}
        owners = []
        for name in self.recorded.names:
            module = name.partition(" ")[0].rpartition(".")[0]
            if module not in places:
                places[module] = len(modules)
                modules.append(module)
            owners.append(places[module])
        self.modules = tuple(modules)
        return owners

    def _block(self, row: Sequence[int]) -> Optional[Block]:
        """A block as it was sent, unknown things as such; None for what is none or was never there."""
        if len(row) < 7:
            return None
        born, end, size, category, name, site, module = row[:7]
        died = end if 0 <= end < self.last else None
        if born >= self.last or (died is not None and died <= born):
            return None
        recorded = self.recorded
        name = name if 0 <= name < len(recorded.names) else -1
        if not 0 <= module < len(recorded.modules):
            module = self._owners[name] if name >= 0 else -1  # what was there before has a name and ran in no module
        return Block(
            max(-1, born),
            died,
            size,
            self._places[category] if 0 <= category < len(self._places) else self._rest_place,
            name,
            site if 0 <= site < len(recorded.sites) else -1,
            module,
        )

    def _count(self) -> None:
        changes: list[tuple[int, ...]] = [  # (event, bytes, category)
            (block.born, block.size_bytes, block.category) for block in self.blocks if block.born >= 0
        ]
        changes += [(block.died, -block.size_bytes, block.category) for block in self.blocks if block.died is not None]
        changes.sort()
        now = [0] * len(self.categories)
        now[self._rest_place] = self.rest_bytes
        for block in self.blocks:
            if block.born < 0:
                now[block.category] += block.size_bytes
        total = sum(now)
        #: Allocated bytes at every instant.
        self.totals = [total]
        self._changes = changes
        self._kept: list[tuple[int, ...]] = []  # before each _KEPT_EVERY-th change
        place = 0
        for event in range(self.last):
            while place < len(changes) and changes[place][0] == event:
                if place % _KEPT_EVERY == 0:
                    self._kept.append(tuple(now))
                _, size, owner = changes[place]
                now[owner] += size
                total += size
                place += 1
            self.totals.append(total)
        self._kept.append(tuple(now))

    @property
    def kept_for_backward(self) -> Optional[int]:
        """Bytes of activations where a backward pass begins, the most of several; None where there is none."""
        place = self.categories.index("activations")
        begins = [event for event, phase in self._marks if phase == "backward"]
        return max((self.composition(min(event, self.last))[place] for event in begins), default=None)

    # At an instant

    def composition(self, instant: int) -> tuple[int, ...]:
        """Bytes by category, in the order of `categories`; they add up to `totals[instant]`."""
        end = bisect.bisect_left(self._changes, (instant,))
        kept = end // _KEPT_EVERY
        now = list(self._kept[kept])
        for _, size, owner in self._changes[kept * _KEPT_EVERY : end]:
            now[owner] += size
        return tuple(now)

    def alive(self, instant: int) -> list[Block]:
        """The blocks that are allocated at an instant."""
        last = instant - 1
        return [block for block in self.blocks if block.born <= last and (block.died is None or block.died > last)]

    def time_us(self, instant: int) -> int:
        """When an instant begins, since the step began."""
        return self.recorded.event_us[instant - 1] if instant else 0

    def instant_at(self, time_us: int) -> int:
        """The last instant that has begun by then."""
        return bisect.bisect_right(self.recorded.event_us, time_us)

    def phase(self, instant: int) -> str:
        """The phase in which an instant is, that of its own event; empty where nobody said."""
        return self.phase_of_event(max(0, instant - 1))

    def phase_of_event(self, event: int) -> str:
        """The phase in which an event happened."""
        place = bisect.bisect_right(self._marks, (event, "\U0010ffff")) - 1
        return self._marks[place][1] if place >= 0 else ""

    def phase_starting(self, first: int, end: int) -> Optional[str]:
        """The last phase that begins with an event of [first, end); None where none does."""
        place = bisect.bisect_left(self._marks, (end, "")) - 1
        return self._marks[place][1] if place >= 0 and self._marks[place][0] >= first else None

    # Over a stretch

    def columns(self, edges: Sequence[int]) -> list[Column]:
        """A column for each pair of neighbours in `edges`, instants in rising order: [edges[n], edges[n + 1]).

        An empty one shows what held when it began. No maximum is lost: a column shows the most that was in it.
        """
        totals = self.totals
        result: list[Column] = []
        for first, end in zip(edges, edges[1:]):
            instant = max(range(first, end), key=totals.__getitem__) if first < end else max(0, first - 1)
            if result and result[-1].instant == instant:
                result.append(result[-1])
            else:
                result.append(Column(instant, self.composition(instant)))
        return result
