"""Steps of several sizes, and the same step at another size, done again by the simulated allocator."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Optional

from memtui.analysis.allocator.course import ALLOCATE, FREE_NOW, REQUEST, Course
from memtui.analysis.allocator.replay import Replayed, StepReplay
from memtui.analysis.allocator.settings import UNIT_BYTES
from memtui.session.steps import step_number
from memtui.wire.frames import RecordedStep

from .fit import Law, find_scales, laws
from .sequence import difference, sequence, sizes

#: So often a step of another size is done again: what a step leaves is there in the next one.
_STEPS = 6
#: What follows no law may be this part of the peak.
MOST_IN_DOUBT = 0.01
#: Halvings of the range in which the scale of a peak lies, and how far that range reaches.
_HALVINGS, _FARTHEST = 24, 64.0


class Refused(Exception):
    """No forecast can be given; the message says why, in words."""


@dataclass(frozen=True)
class Peaks:
    """Bytes of live tensors and of segments; `failed_bytes` is a request that did not fit."""

    allocated_bytes: int
    reserved_bytes: int
    failed_bytes: Optional[int] = None


@dataclass
class Shapes:
    """Recorded steps that differ in sizes alone, the smallest first; `scales` are in parts of the largest."""

    steps: tuple[RecordedStep, ...]
    sizes: tuple[tuple[int, ...], ...]
    scales: tuple[float, ...]
    laws: tuple[Law, ...]
    base: RecordedStep  # the newest: from its memory the others are done again
    course: Course = field(repr=False)
    numbers: tuple[int, ...] = field(repr=False)  # of the base's blocks, in order

    @property
    def input_law(self) -> Optional[Law]:
        """Of the largest block of the step's input that differs in size; None where there is none."""
        place = self.base.categories.index("inputs") if "inputs" in self.base.categories else -1
        found = [
            (law(1.0), law)
            for number, law in zip(self.numbers, self.laws)
            if self.base.blocks[number][3] == place and (law.linear or law.square)
        ]
        return max(found, key=lambda each: each[0], default=(0, None))[1]

    def at(self, scale: float) -> tuple[int, ...]:
        """Bytes of each block."""
        return tuple(law(scale) for law in self.laws)

    def allocated_bytes(self, scale: float) -> tuple[int, float]:
        """The most that is allocated at once, and the most of it that is in doubt; blocks rounded up, no more."""
        asked = self.at(scale)
        held = {number: _rounded(size) for number, size in zip(self.numbers, asked)}
        doubts = {number: held[number] * law.doubt for number, law in zip(self.numbers, self.laws) if law.doubt}
        alive = {number: self.base.blocks[number][2] for number in self.course.before.values()}
        for new, old in self.course.inherited.items():
            alive[old] = held[new]
        now = peak = sum(alive.values())
        doubt = worst = 0.0
        for act in self.course.acts:
            if act.kind == ALLOCATE:
                size = alive[act.number] = held.get(act.number, _rounded(act.asked_bytes))
                now, doubt = now + size, doubt + doubts.get(act.number, 0.0)
                peak, worst = max(peak, now), max(worst, doubt)
            elif act.kind in (FREE_NOW, REQUEST):
                now -= alive.pop(act.number, 0)
                doubt -= doubts.get(act.number, 0.0)
        return peak, worst

    def scale_of_peak(self, allocated_bytes: int) -> float:
        """The scale at which so much is allocated at the peak; 1 where the largest recorded step reaches it."""
        low, high = 1.0, _FARTHEST
        if self.allocated_bytes(low)[0] >= allocated_bytes:
            return low
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.allocated_bytes(middle)[0] >= allocated_bytes else (middle, high)
        return high


def shapes_of(recorded: Sequence[RecordedStep]) -> Generator[None, None, Shapes]:
    """What these steps of one device, oldest first, have in common; gives way now and then.

    Steps that do not ask for the same in the same order as the largest one are left out. Raises Refused.
    """
    whole = [each for each in recorded if each.heap is not None and not each.lost_events]
    if not whole:
        raise Refused("no step is recorded with all of its events")
    largest = max(whole, key=lambda each: sum(sizes(each)[1]))
    wanted = sequence(largest)
    yield
    alike, other = {}, None
    for each in whole:
        if sequence(each) == wanted:
            alike[sizes(each)[1]] = each  # of two of one size the newer
        else:
            other = each
        yield
    if len(alike) < 2:
        if other is not None:
            raise Refused(difference(other, largest))
        seen = "one step is recorded so far" if len(whole) == 1 else "all recorded steps are of one size"
        raise Refused(f"{seen}, and two sizes are needed")
    ordered = sorted(alike, key=sum)
    scales = find_scales(ordered)
    yield
    if scales is None:
        raise Refused("the sizes of the recorded steps' blocks do not grow together")
    base = max(alike.values(), key=lambda each: each.time_ns)
    course = Course(base)
    yield from course.prepare()
    steps = tuple(alike[each] for each in ordered)
    return Shapes(steps, tuple(ordered), scales, laws(ordered, scales), base, course, sizes(base)[0])


def check(shapes: Shapes, scale: float) -> None:
    """Raises Refused where at this scale too much of the peak is in doubt."""
    peak, doubt = shapes.allocated_bytes(scale)
    if doubt > MOST_IN_DOUBT * peak:
        steps = _listed(shapes.steps)
        share = 100 * doubt / max(1, peak)
        raise Refused(f"how blocks of {share:.0f} % of the peak grow cannot be told from {steps}")


def peaks_at(
    shapes: Shapes,
    asked: Sequence[int],
    *,
    capacity_bytes: Optional[int] = None,
    total_bytes: Optional[int] = None,
) -> Generator[None, None, Peaks]:
    """The peaks of steps whose blocks have these sizes, one after another, from the newest recorded step's memory."""
    course = _resized(shapes, asked)
    replay = StepReplay(course, capacity_bytes=capacity_bytes, total_bytes=total_bytes)
    yield from replay.run(_STEPS)
    found: Replayed = replay.result
    failed = None if found.failure is None else found.failure.asked_bytes
    return Peaks(found.peak_allocated_bytes, found.peak_reserved_bytes, failed)


def own_error_percent(shapes: Shapes) -> Generator[None, None, Optional[float]]:
    """How far the peak of the largest recorded step is off where the smaller ones alone foretell it; None of two."""
    if len(shapes.steps) < 3:
        return None
    unit = shapes.scales[-2]
    smaller = laws(shapes.sizes[:-1], [scale / unit for scale in shapes.scales[:-1]])
    foretold = yield from peaks_at(shapes, [law(1 / unit) for law in smaller])
    own = yield from peaks_at(shapes, shapes.sizes[-1])
    return 100 * (foretold.allocated_bytes - own.allocated_bytes) / max(1, own.allocated_bytes)


def steps_text(shapes: Shapes) -> str:
    """The steps it rests on: "steps 6, 10 and 14"."""
    return _listed(shapes.steps)


def _resized(shapes: Shapes, asked: Sequence[int]) -> Course:
    """The base's course with other sizes; where its blocks were says nothing then."""
    course = Course(shapes.base)
    resized = dict(zip(shapes.numbers, asked))
    course.before, course.inherited = shapes.course.before, shapes.course.inherited
    course.acts = [
        act._replace(asked_bytes=resized.get(act.number, act.asked_bytes), place=-1) if act.kind == ALLOCATE else act
        for act in shapes.course.acts
    ]
    course.prepared = True
    return course


def _rounded(size_bytes: int) -> int:
    return -(-size_bytes // UNIT_BYTES) * UNIT_BYTES


def _listed(steps: Iterable[RecordedStep]) -> str:
    numbers = [f"{number:,}" for number in sorted(step_number(each.step) for each in steps)]
    return f"steps {', '.join(numbers[:-1])} and {numbers[-1]}"
