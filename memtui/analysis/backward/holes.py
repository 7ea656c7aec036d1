"""How much more the blocks of later steps take than is asked for: by the allocator's rules, from one forward alone.

A block is cut from a free one, and the rest stays with it where it is too small to be of use: up to 1 MiB. Which free
blocks there are depends on all that was done before. So the first step is put together (its forward as it was recorded,
its backward as its graph tells, its optimizer's step as it was tried) and done again and again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Optional

from memtui.analysis.allocator.course import ALLOCATE, COMPLETE, FREE_NOW, Course, prepared
from memtui.analysis.allocator.replay import StepReplay
from memtui.analysis.allocator.settings import UNIT_BYTES
from memtui.analysis.allocator.versions import tie_rules
from memtui.wire.frames import RecordedHeap, RecordedStep

from .course import WORKSPACE, Act, Block, Pass
from .graph import rounded

#: Steps that are done; the first makes the state, and from the third on little changes.
_STEPS = 5
_NOBODY = ""


@dataclass(frozen=True)
class Doing:
    """What an optimizer's first step makes and frees: n a block of `sizes[n]` bytes, -n - 1 that one's end."""

    sizes: tuple[int, ...]
    events: tuple[int, ...]


class _Step:
    """A recorded forward, with what is to follow."""

    def __init__(self, forward: RecordedStep, heap: RecordedHeap) -> None:
        self._forward, self._heap = forward, heap
        self.rows = [list(row) for row in forward.blocks]
        self.asked = list(heap.asked_bytes)
        self.event = len(forward.event_us)
        self.categories = [*forward.categories, _NOBODY]
        #: Above all addresses that can be: such a place is compared with nothing.
        self._place = -(heap.base_address // UNIT_BYTES) - 1

    def make(self, size: int, category: str = _NOBODY) -> int:
        """A block is allocated; its number."""
        self.rows.append([self.event, -1, size, self.categories.index(category), -1, -1, -1])
        self.asked.append(size)
        self.event += 1
        return len(self.rows) - 1

    def free(self, number: int) -> None:
        """A block goes."""
        self.rows[number][1] = self.event
        self.event += 1

    def whole(self) -> RecordedStep:
        """All of it, as a recorded step."""
        count = len(self.rows) - len(self._heap.places)
        streams = (*self._heap.streams, *[0] * count) if self._heap.streams else ()
        places = (*self._heap.places, *[self._place] * count)
        heap = replace(self._heap, places=places, asked_bytes=tuple(self.asked), streams=streams)
        times = tuple([0] * self.event)
        rows = tuple(tuple(row) for row in self.rows)
        return replace(self._forward, event_us=times, blocks=rows, categories=tuple(self.categories), heap=heap)


def put_together(
    forward: RecordedStep, backward: Pass, optimizers: Iterable[Doing], *, gradients_stay: bool
) -> Optional[RecordedStep]:
    """The first step as it will have been, and those after it with it; None where its beginning is not known.

    Gradients go at its end, or stay and are added to. What the forward leaves goes with what it is kept for, else at
    the end.
    """
    if forward.heap is None or forward.lost_events:
        return None
    step = _Step(forward, forward.heap)
    before = [number for number, row in enumerate(step.rows) if row[0] < 0 <= row[1]]
    left = [number for number, row in enumerate(step.rows) if row[0] >= 0 > row[1]]
    kept = _found(step, left, backward.found)
    made: dict[Block, int] = {}
    for block, size in backward.acts:
        if size:
            made[block] = step.make(size, "workspaces" if block == WORKSPACE else _NOBODY)
            if gradients_stay and block in backward.gradients:
                step.make(size, "gradients")
                step.free(made.pop(block))
        elif block in kept:
            step.free(kept.pop(block))
        elif block in made:
            step.free(made.pop(block))
    made.pop(WORKSPACE, None)
    gradients = [made.pop(block) for block in backward.gradients if block in made]
    for number in made.values():
        step.free(number)
    for doing in optimizers:
        _do(step, doing)
    for number in [*(number for number in left if step.rows[number][1] < 0), *gradients]:
        step.free(number)
    for number in before:  # made anew before each forward, which then frees it
        step.rows[step.make(step.asked[number] or step.rows[number][2])][3:5] = step.rows[number][3:5]
    return step.whole()


def _found(step: _Step, left: Iterable[int], wanted: Iterable[Act]) -> dict[Block, int]:
    """The forward's blocks that are as large as what is kept, both in the order in which they were made."""
    waiting: defaultdict[int, deque[int]] = defaultdict(deque)
    for number in left:
        waiting[rounded(step.asked[number])].append(number)
    return {block: waiting[size].popleft() for block, size in wanted if waiting[size]}


def _do(step: _Step, doing: Doing) -> None:
    made: dict[int, int] = {}
    stays = set(doing.events) - {-event - 1 for event in doing.events if event < 0}
    for event in doing.events:
        if event < 0:
            number = made.pop(-event - 1, None)
            if number is not None:
                step.free(number)
        elif doing.sizes[event]:
            made[event] = step.make(doing.sizes[event], "optimizer_state" if event in stays else _NOBODY)


def of_later_steps(step: RecordedStep, forward: RecordedStep, torch: str) -> int:
    """By how much more the blocks exceed what was asked for at the peak of later steps than before the first backward.

    Derived: 0 where it could not be told.
    """
    course = prepared(step)
    replay = StepReplay(course, by_age=tie_rules(torch)[0])
    for _ in replay.run(_STEPS):
        pass
    later = [done.peak_allocated_bytes for done in replay.result.steps][1:]
    if replay.result.failure is not None or not later:
        return 0
    return max(later) - max(_asked_peaks(course)[1:]) - _slack_of(forward)


def _slack_of(forward: RecordedStep) -> int:
    """What the blocks that a recorded forward leaves have beyond what was asked for."""
    asked = () if forward.heap is None else forward.heap.asked_bytes
    there = zip(forward.blocks, asked)
    return sum(row[2] - rounded(size) for row, size in there if row[1] < 0 < size)


def _asked_peaks(course: Course) -> list[int]:
    """The highest sum of what was asked for, of each step."""
    held = {number: rounded(course.asked_bytes(number)) for number in course.before.values()}
    total, peaks = sum(held.values()), []
    for _ in range(_STEPS):
        peak = total
        for act in course.acts:
            if act.kind == ALLOCATE:
                if not (act.once and act.number in held):
                    total += rounded(act.asked_bytes) - held.pop(act.number, 0)
                    held[act.number] = rounded(act.asked_bytes)
                    peak = max(peak, total)
            elif act.kind in (FREE_NOW, COMPLETE):
                total -= held.pop(act.number, 0)
        for new, old in course.inherited.items():
            if new in held:
                held[old] = held.pop(new)
        peaks.append(peak)
    return peaks
