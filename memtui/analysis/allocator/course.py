"""A recorded step as a list of what to do with an allocator, made to be done again and again."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from memtui.wire.frames import RecordedHeap, RecordedStep

from .blocks import FREE, LIVE, PENDING
from .settings import UNIT_BYTES
from .snapshot import Piece, Stretch

#: What is done. A block that is freed later is requested first.
ALLOCATE, FREE_NOW, REQUEST, COMPLETE, EMPTY = range(5)
#: What appears in a step and lasts is made once; anything else that stays is made in every step, and piles up.
_MADE_ONCE = frozenset(("parameters", "buffers", "gradients", "optimizer_state", "workspaces", "communication"))
_PRIVATE = -1
_PRIVATE_POOL = (0, 1)


@dataclass(frozen=True)
class Addition:
    """A block that the recorded step did not make and the next one will, before this event, and keep."""

    event: int
    asked_bytes: int
    stream: int = 0


class Act(NamedTuple):
    """One thing to do. `number` is the block's in the recorded step, or after those an addition's."""

    kind: int
    number: int = -1
    asked_bytes: int = 0
    stream: int = 0
    place: int = -1  # the address it had in the recording
    once: bool = False  # not made again while it is there


class Course:
    """What a step does, in order. `inherited` pairs what is there at its end with what was there at its beginning.

    So a next step frees what this one has left: gradients, the last batch, the last loss. Pairs are of one size, name
    and category, else of one size; then, where batches differ, of one name and category.
    """

    def __init__(self, recorded: RecordedStep, heap: RecordedHeap, additions: Iterable[Addition] = ()) -> None:
        self.recorded, self.heap = recorded, heap
        self.last = len(recorded.event_us)
        self.inherited = self._inherited()
        self.acts = self._acts(additions)
        #: Blocks that were there before, by their address.
        self.before = {
            self.address(number): number for number, row in enumerate(recorded.blocks) if row[0] < 0
        }

    def address(self, number: int) -> int:
        """Where a block was."""
        return self.heap.base_address + self.heap.places[number] * UNIT_BYTES

    def asked_bytes(self, number: int) -> int:
        """What was asked for, else what was given; -1 in a private pool."""
        return self.heap.asked_bytes[number] or self.recorded.blocks[number][2]

    def stream(self, number: int) -> int:
        """The stream for which a block was allocated."""
        return self.heap.streams[number] if self.heap.streams else 0

    def _inherited(self) -> dict[int, int]:
        """By the number of a block that stays: that of the one that it replaces."""
        blocks = self.recorded.blocks
        old = [number for number, row in enumerate(blocks) if row[0] < 0 <= row[1]]
        new = [number for number, row in enumerate(blocks) if row[0] >= 0 > row[1]]
        old.sort(key=lambda number: blocks[number][1])
        new.sort(key=lambda number: blocks[number][0])
        found: dict[int, int] = {}
        for alike in (slice(2, 5), slice(2, 3), slice(3, 5)):  # of a row: bytes, category, name
            waiting: defaultdict[tuple[int, ...], deque[int]] = defaultdict(deque)
            for number in old:
                waiting[blocks[number][alike]].append(number)
            for number in new:
                partners = waiting.get(blocks[number][alike])
                if number not in found and partners:
                    found[number] = partners.popleft()
            taken = set(found.values())
            old = [number for number in old if number not in taken]
        return found

    def _acts(self, additions: Iterable[Addition]) -> list[Act]:
        """In the order of events; what has the number of an event is done before it."""
        recorded = self.recorded
        late = {number: event for number, event, *_ in self.heap.late}
        found: list[tuple[int, int, Act]] = [(event, 0, Act(EMPTY)) for event in self.heap.emptied]
        for number, event in late.items():
            if number >= 0:
                found.append((event, 1, Act(COMPLETE, number)))
        for number, row in enumerate(recorded.blocks):
            born, died = row[0], row[1]
            if self.heap.asked_bytes[number] == _PRIVATE:
                continue
            if died >= 0:
                found.append((died, 2, Act(REQUEST if number in late else FREE_NOW, number)))
            if born >= 0:
                category = recorded.categories[row[3]] if 0 <= row[3] < len(recorded.categories) else ""
                once = died < 0 and number not in self.inherited and category in _MADE_ONCE
                size, stream, place = self.asked_bytes(number), self.stream(number), self.address(number)
                found.append((born, 4, Act(ALLOCATE, number, size, stream, place, once)))
        for number, addition in enumerate(additions, len(recorded.blocks)):
            size, stream = addition.asked_bytes, addition.stream
            found.append((addition.event, 3, Act(ALLOCATE, number, size, stream, once=True)))
        found.sort(key=lambda each: each[:2])
        return [act for _, _, act in found]

    def stretches(self) -> list[Stretch]:
        """The memory that the step began with."""
        base, rows = self.heap.base_address, self.recorded.blocks
        pieces: list[tuple[int, Piece]] = []
        for address, number in self.before.items():
            pieces.append((address, Piece(rows[number][2], LIVE, max(0, self.heap.asked_bytes[number]))))
        pieces += [
            (base + place * UNIT_BYTES, Piece(size * UNIT_BYTES, PENDING)) for place, size, *_ in self.heap.pending
        ]
        pieces.sort(reverse=True)
        found = []
        for place, units, stream, small, expandable, private in sorted(self.heap.segments):
            address = first = base + place * UNIT_BYTES
            end, parts = address + units * UNIT_BYTES, []
            while pieces and pieces[-1][0] < end:
                begins, piece = pieces.pop()
                if begins > address:
                    parts.append(Piece(begins - address, FREE))
                parts.append(piece)
                address = begins + piece.size_bytes
            if address < end:
                parts.append(Piece(end - address, FREE))
            pool_id = _PRIVATE_POOL if private else (0, 0)
            found.append(Stretch(first, bool(small), stream, tuple(parts), bool(expandable), pool_id))
        return found
