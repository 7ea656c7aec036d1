"""A recorded step done again and again by the simulated allocator, until nothing changes any more."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from memtui.wire.frames import RecordedStep

from .blocks import FREE, LIVE, UNMAPPED, Block
from .caching import CachingAllocator, OutOfMemory
from .course import ALLOCATE, COMPLETE, EMPTY, FREE_NOW, Addition, Course
from .settings import UNIT_BYTES, Settings, settings_from
from .snapshot import restored
from .versions import tie_rules

#: Acts after which whoever has something else to do can do it: some 10 ms.
_BATCH = 2048
_ADDRESS_UNIT = 2 << 20
#: How often the step is done again to learn which of two segments is the older.
_LESSONS = 16


@dataclass(frozen=True)
class ReplayedStep:
    """One step's figures; peaks are of this step alone, the rest is as it ended."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    num_alloc_retries: int


@dataclass(frozen=True)
class Failure:
    """A request that could not be satisfied: in the `step`-th step that was done again, the first being 1."""

    step: int
    event: int  # how many of its acts were done
    asked_bytes: int
    free_bytes: int  # in the allocator's segments then, after all that could be given back was

    @property
    def scattered(self) -> bool:
        """Whether so much was free, but in pieces: fragmentation."""
        return self.free_bytes >= self.asked_bytes


@dataclass(frozen=True)
class Replayed:
    """What came of it. `settled`: a step ended as one before it had, block by block, so that it goes on like that."""

    start_allocated_bytes: int
    start_reserved_bytes: int
    steps: tuple[ReplayedStep, ...]
    settled: bool
    compared: int  # allocations of the recorded step
    same_place: int  # of these, those that were given the address that torch gave them
    failure: Optional[Failure] = None

    @property
    def peak_allocated_bytes(self) -> int:
        """The highest of all steps."""
        return max((step.peak_allocated_bytes for step in self.steps), default=self.start_allocated_bytes)

    @property
    def peak_reserved_bytes(self) -> int:
        """The highest of all steps."""
        return max((step.peak_reserved_bytes for step in self.steps), default=self.start_reserved_bytes)

    @property
    def growth_bytes(self) -> int:
        """By how much more each step leaves behind; 0 where one of them left no more than the one before."""
        ends = [step.allocated_bytes for step in self.steps]
        risen = [after - before for before, after in zip(ends, ends[1:])]
        return risen[-1] if len(risen) > 1 and min(risen) > 0 else 0

    @property
    def steady(self) -> bool:
        """Whether it goes on like that: settled, or it has left nothing behind and reserved nothing for half the time.

        Steps may never be quite alike: what is not cut off a block depends on which free one was found.
        """
        half = len(self.steps) // 2
        peaks = [step.peak_reserved_bytes for step in self.steps]
        level = half > 2 and max(peaks[half:]) <= max(peaks[:half]) and not self.growth_bytes
        return self.failure is None and (self.settled or level)

    @property
    def exact(self) -> bool:
        """Whether the recorded step was followed to the last address."""
        return self.same_place == self.compared


class StepReplay:
    """Does a recorded step again; `run` is a generator, so that nobody has to wait for all of it.

    `course` is the step, prepared. It begins with the memory that it had, or `from_empty`: then what was there is
    allocated first, in the order of its addresses, but for the `absent` blocks, by their numbers in the step.
    `settings` other than the recorded ones answer what these would do. `order` has the addresses of the first segments,
    the oldest first; without it they rise. `by_age` is the rule of the torch that recorded: tie_rules.
    """

    def __init__(
        self,
        course: Course,
        *,
        settings: Optional[Settings] = None,
        capacity_bytes: Optional[int] = None,
        total_bytes: Optional[int] = None,
        from_empty: bool = False,
        absent: Iterable[int] = (),
        order: Optional[Sequence[int]] = None,
        by_age: bool = True,
    ) -> None:
        if not course.prepared:
            raise ValueError("the course is not prepared")
        self._course = course
        self._settings = settings if settings is not None else settings_from(course.heap.settings)
        self._capacity_bytes, self._total_bytes, self._by_age = capacity_bytes, total_bytes, by_age
        self._place, self._highest = -1, course.heap.base_address
        self._held: dict[int, Block] = {}
        self.allocator = self._emptied(frozenset(absent)) if from_empty else self._recorded_memory(order)
        self._start = self.allocator.allocated_bytes, self.allocator.reserved_bytes
        self._steps: list[ReplayedStep] = []
        self._same_place = self._compared = 0
        #: Of the first allocation that went elsewhere for this alone: the segment that must be older than the other.
        self.lesson: Optional[tuple[int, int]] = None
        self._settled = False
        self._failure: Optional[Failure] = None

    def run(self, steps: int = 40) -> Iterator[None]:
        """At most so many steps; gives way every some 10 ms. `result` has what came of it so far."""
        seen = {self._fingerprint()}
        for number in range(steps):
            yield from self._step(number + 1)
            if self._failure is not None:
                return
            now = self._fingerprint()
            if now in seen and number:
                self._settled = True
                return
            seen.add(now)

    @property
    def result(self) -> Replayed:
        """What came of it."""
        return Replayed(
            *self._start,
            steps=tuple(self._steps),
            settled=self._settled,
            compared=self._compared,
            same_place=self._same_place,
            failure=self._failure,
        )

    # -- the beginning ------------------------------------------------------------------

    def _recorded_memory(self, order: Optional[Sequence[int]]) -> CachingAllocator:
        found = self._course.stretches()
        if order is not None:
            places = {address: place for place, address in enumerate(order)}
            found.sort(key=lambda stretch: places.get(stretch.address, len(places)))
        allocator, live = restored(
            found,
            self._settings,
            capacity_bytes=self._capacity_bytes,
            total_bytes=self._total_bytes,
            by_age=self._by_age,
            place=self._new_place,
        )
        self._highest = max((stretch.address + stretch.size_bytes for stretch in found), default=self._highest)
        for address, number in self._course.before.items():
            block = live.get(address)
            if block is not None and block.state == LIVE:
                self._held[number] = block
        return allocator

    def _emptied(self, absent: frozenset[int]) -> CachingAllocator:
        allocator = CachingAllocator(
            self._settings,
            capacity_bytes=self._capacity_bytes,
            total_bytes=self._total_bytes,
            by_age=self._by_age,
            place=self._new_place,
        )
        for _, number in sorted(self._course.before.items()):
            asked = self._course.asked_bytes(number)
            if asked > 0 and number not in absent:
                self._held[number] = allocator.allocate(asked, self._course.stream(number))
        allocator.reset_peaks()
        return allocator

    def _new_place(self, size_bytes: int) -> int:
        """In the first step where the recorded one had its new segments, later above all."""
        place, self._place = self._place, -1
        if place < 0 or place in self.allocator.segments:
            place = -(-self._highest // _ADDRESS_UNIT) * _ADDRESS_UNIT
        self._highest = max(self._highest, place + size_bytes)
        return place

    # -- a step ---------------------------------------------------------------------------

    def _step(self, number: int) -> Iterator[None]:
        allocator, held, course = self.allocator, self._held, self._course
        retries = allocator.num_alloc_retries
        allocator.reset_peaks()
        free, allocate = allocator.free, allocator.allocate
        first = number == 1
        for done, (kind, name, asked_bytes, stream, place, once) in enumerate(course.acts, 1):
            if kind == FREE_NOW:
                block = held.pop(name, None)
                if block is not None:
                    free(block)
            elif kind != ALLOCATE:
                self._other(kind, name)
            elif not (once and name in held):
                self._place = place if first else -1
                try:
                    block = held[name] = allocate(asked_bytes, stream)
                except OutOfMemory:
                    left = allocator.reserved_bytes - allocator.allocated_bytes
                    self._failure = Failure(number, done, asked_bytes, left)
                    return
                if first and place >= 0:
                    self._compared += 1
                    if block.address == place:
                        self._same_place += 1
                    elif self.lesson is None:
                        self.lesson = self._learn(block, place)
            if not done % _BATCH:
                yield
        for new, old in course.inherited.items():
            block = held.pop(new, None)
            if block is not None:
                held[old] = block
        self._steps.append(
            ReplayedStep(
                allocator.peak_allocated_bytes,
                allocator.peak_reserved_bytes,
                allocator.allocated_bytes,
                allocator.reserved_bytes,
                allocator.num_alloc_retries - retries,
            )
        )
        yield

    def _learn(self, block: Block, place: int) -> Optional[tuple[int, int]]:
        """Whether torch took a block that is as large as the one that was taken here, but of another segment."""
        wanted = next((free for *_, free in block.home.blocks if free.address == place), None)
        following = block.next
        sizes = [block.size_bytes]
        if following is not None and following.state == FREE:  # the rest of what it was cut from
            sizes.append(block.size_bytes + following.size_bytes)
        if wanted is None or wanted.size_bytes not in sizes or wanted.segment is block.segment:
            return None
        return wanted.segment.address, block.segment.address

    def _other(self, kind: int, name: int) -> None:
        if kind == EMPTY:
            self.allocator.empty_cache()
            return
        block = self._held.get(name)
        if block is None:
            return
        if kind == COMPLETE:
            del self._held[name]
            self.allocator.complete_free(block)
        else:
            self.allocator.request_free(block)

    def _fingerprint(self) -> int:
        """Of every block: where it is and what."""
        return hash(tuple((block.address, block.state) for block in self.allocator.blocks() if block.state != UNMAPPED))


def replaying(
    recorded: RecordedStep,
    additions: Iterable[Addition] = (),
    *,
    torch: str = "",
    capacity_bytes: Optional[int] = None,
    total_bytes: Optional[int] = None,
    steps: int = 40,
) -> Generator[None, None, Replayed]:
    """A recorded step again, from the memory that it began with; gives way every some 10 ms.

    `torch` is the version that recorded it, empty where that is unknown. Which of two segments is the older is not
    told, and newer ones take equally large blocks by that. Mostly a device gives out rising addresses, or falling ones;
    where neither explains the recorded addresses, what contradicts it is learnt from the step itself.
    """
    course = Course(recorded, additions)
    yield from course.prepare()
    order, by_age = yield from _ties(course, tie_rules(torch))
    replay = StepReplay(course, capacity_bytes=capacity_bytes, total_bytes=total_bytes, order=order, by_age=by_age)
    yield from replay.run(steps)
    return replay.result


def replayed(
    recorded: RecordedStep, additions: Iterable[Addition] = (), *, torch: str = "", steps: int = 40
) -> Replayed:
    """All of it at once."""
    under_way = replaying(recorded, additions, torch=torch, steps=steps)
    while True:
        try:
            next(under_way)
        except StopIteration as end:
            result: Replayed = end.value
            return result


def _ties(course: Course, rules: Iterable[bool]) -> Generator[None, None, tuple[list[int], bool]]:
    """The first segments from the oldest to the newest, and the rule, as far as the recorded step tells."""
    heap = course.heap
    rising = sorted(heap.base_address + segment[0] * UNIT_BYTES for segment in heap.segments)
    best, best_places = (rising, True), -1
    for by_age in rules:
        for order in (rising, rising[::-1]) if by_age else (rising,):
            tried = list(order)
            for _ in range(_LESSONS if by_age else 1):
                replay = StepReplay(course, order=tried, by_age=by_age)
                yield from replay.run(1)
                if replay.result.same_place > best_places:
                    best, best_places = (list(tried), by_age), replay.result.same_place
                if replay.result.exact:
                    return best
                older, younger = replay.lesson or (0, 0)
                if older not in tried or younger not in tried or tried.index(older) < tried.index(younger):
                    break
                tried.remove(older)
                tried.insert(tried.index(younger), older)
    return best
