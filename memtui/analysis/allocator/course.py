"""A recorded step as a list of what to do with an allocator, made to be done again and again."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, Optional

from memtui.wire.frames import RecordedStep

from .blocks import FREE, LIVE, PENDING
from .settings import UNIT_BYTES
from .snapshot import Piece, Stretch

#: What is done. A block that is freed later is requested first.
ALLOCATE, FREE_NOW, REQUEST, COMPLETE, EMPTY = range(5)
#: What appears in a step and lasts is made once; anything else that stays is made in every step, and piles up.
_MADE_ONCE = frozenset(("parameters", "buffers", "gradients", "optimizer_state", "workspaces", "communication"))
_PRIVATE = -1
_BATCH = 4096
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

    So a next step frees what this one has left: gradients, the last batch, the last loss. In pairs as much
    was asked for, by one name and category, else by any; then, where batches differ, name and category are the same.
    """

    def __init__(self, recorded: RecordedStep, additions: Iterable[Addition] = ()) -> None:
        """Raises ValueError where the step says nothing of its memory. It is of use once it is prepared."""
        if recorded.heap is None:
            raise ValueError("the step was recorded without the allocator's memory")
        self.recorded, self.heap = recorded, recorded.heap
        self._additions = tuple(additions)
        self.prepared = False
        self.inherited: dict[int, int] = {}
        self.acts: list[Act] = []
        #: Blocks that were there before, by their address.
        self.before: dict[int, int] = {}

    def prepare(self) -> Iterator[None]:
        """Reads the step; gives way now and then."""
        blocks = self.recorded.blocks
        self.before = {self.address(number): number for number, row in enumerate(blocks) if row[0] < 0}
        yield
        self.inherited = self._inherited()
        yield
        late = {number: event for number, event, *_ in self.heap.late}
        found = self._additional()
        for number in range(len(blocks)):
            found += self._of_block(number, late.get(number))
            if number % _BATCH == _BATCH - 1:
                yield
        found.sort(key=itemgetter(0, 1))
        self.acts = [act for _, _, act in found]
        self.prepared = True

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
        for alike in (lambda row, asked: (asked, *row[3:5]), lambda row, asked: (asked,), lambda row, asked: row[3:5]):
            waiting: defaultdict[tuple[int, ...], deque[int]] = defaultdict(deque)
            for number in old:
                waiting[alike(blocks[number], self.asked_bytes(number))].append(number)
            for number in new:
                partners = waiting.get(alike(blocks[number], self.asked_bytes(number)))
                if number not in found and partners:
                    found[number] = partners.popleft()
            taken = set(found.values())
            old = [number for number in old if number not in taken]
        # Of a batch of another size neither sizes nor names need be known: as many of each are the same parts.
        rest = [number for number in new if number not in found]
        if len(rest) == len(old):
            found.update(zip(sorted(rest, key=self.asked_bytes), sorted(old, key=self.asked_bytes)))
        return found

    def _additional(self) -> list[tuple[int, int, Act]]:
        """(event, order, act) of what is no block's own: it is done before the event of that number."""
        found = [(event, 0, Act(EMPTY)) for event in self.heap.emptied]
        for number, addition in enumerate(self._additions, len(self.recorded.blocks)):
            size, stream = addition.asked_bytes, addition.stream
            found.append((addition.event, 3, Act(ALLOCATE, number, size, stream, once=True)))
        return found

    def _of_block(self, number: int, late: Optional[int]) -> Iterator[tuple[int, int, Act]]:
        recorded = self.recorded
        born, died, _, place, *_ = recorded.blocks[number]
        if self.heap.asked_bytes[number] == _PRIVATE:
            return
        if died >= 0:
            yield died, 2, Act(FREE_NOW if late is None else REQUEST, number)
            if late is not None:
                yield late, 1, Act(COMPLETE, number)
        if born >= 0:
            category = recorded.categories[place] if 0 <= place < len(recorded.categories) else ""
            once = died < 0 and number not in self.inherited and category in _MADE_ONCE
            size, stream = self.asked_bytes(number), self.stream(number)
            yield born, 4, Act(ALLOCATE, number, size, stream, self.address(number), once)

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


def prepared(recorded: RecordedStep, additions: Iterable[Addition] = ()) -> Course:
    """All of it at once."""
    course = Course(recorded, additions)
    for _ in course.prepare():
        pass
    return course
