"""The simulated allocator against torch's own: 10,000 random programs, recorded histories, and how fast it is.

Random programs are done by torch on a virtual GPU, some thousand in a process, as its settings are read once in each,
and then by the simulator: equal are those of which every counter and the place of every block are the same. Histories
are the memory snapshots of other people's trainings.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from memtui.analysis.allocator.blocks import Block
from memtui.analysis.allocator.caching import CachingAllocator
from tests.support import allocations
from tests.support.allocations import ALLOCATE
from tests.support.allocations_simulated import Compared, all_compared

from . import surroundings
from .allocator_histories import history, replayed
from .report import Line

#: How many programs with which settings; the numbers of the programs go on from one to the next.
_SETTINGS = {
    "": 3000,
    "expandable_segments:True": 2000,
    "max_split_size_mb:64": 1000,
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]": 1000,
    "garbage_collection_threshold:0.6": 1000,
    "garbage_collection_threshold:0.5,max_split_size_mb:128": 1000,
    "expandable_segments:True,roundup_power2_divisions:8": 500,
    "max_split_size_mb:200,max_non_split_rounding_mb:100,large_segment_size_mb:64": 500,
}
_AT_ONCE, _PROCESSES = 1000, 2
#: So many that also differ alone, and no more are tried.
_LOOKED_INTO = 10
_SHARE_EQUAL, _WORST = 95.0, 0.1  # percent
_EVENTS_A_SECOND = 300_000
_SNAPSHOTS = surroundings.ROOT.parent / "shared" / "cases" / "snapshots"

Job = tuple[str, int, int]


def bench() -> Iterator[Line]:
    """By kind, by settings and all of them; then each history; then the speed."""
    yield from _random_programs()
    yield from _histories()
    yield from _speed()


# -- random programs ---------------------------------------------------------------------------


def _random_programs() -> Iterator[Line]:
    with surroundings.runtime_folder() as folder:
        surroundings.with_virtual_gpu(folder, agent=False)  # is skipped here rather than in a process
    found: list[tuple[str, Compared]] = []
    with ProcessPoolExecutor(_PROCESSES) as processes:
        for settings, compared in processes.map(_done, _jobs()):
            found += [(settings, each) for each in compared]
    for kind in allocations.KINDS:
        yield _line(f"random programs: {kind}", [each for _, each in found if each.kind == kind])
    for settings in _SETTINGS:
        yield _line(settings or "default settings", [each for own, each in found if own == settings])
    every = [each for _, each in found]
    last = every[-1].number
    yield _line(f"all, numbers 0 to {last}", every)
    share = 100 * sum(not each.error for each in every) / len(every)
    yield Line("reserved: equal at the peak and at the end", f"{share:.2f} %", "≥ 95 %", share >= _SHARE_EQUAL)
    yield Line("reserved: worst", f"{100 * max(each.error for each in every):.3f} %")
    unexplained: list[Compared] = []
    for settings, each in [(settings, each) for settings, each in found if not each.equal]:
        alone = _alone(settings, each.number) if len(unexplained) < _LOOKED_INTO else each
        unexplained += [] if alone.equal else [alone]
        said = "equal in a process of its own" if alone.equal else "also alone"
        yield Line(
            f"differs: {each.kind}, number {each.number}", f"{settings or 'default'}: {_difference(each)}; {said}"
        )
    worst = 100 * max((each.error for each in unexplained), default=0.0)
    yield Line("reserved: worst of those that also differ alone", f"{worst:.3f} %", f"≤ {_WORST} %", worst <= _WORST)


def _alone(settings: str, number: int) -> Compared:
    """The same program in a new process.

    Which of a stream's expandable segments grows first depends on their addresses. The kernel puts a new one into the
    highest gap that is large enough, and in a process that has done a thousand programs other mappings lie there too.
    """
    return _done((settings, number, 1))[1][0]


def _jobs() -> Iterator[Job]:
    first = 0
    for settings, count in _SETTINGS.items():
        for begun in range(first, first + count, _AT_ONCE):
            yield settings, begun, min(_AT_ONCE, first + count - begun)
        first += count


def _done(job: Job) -> tuple[str, list[Compared]]:
    """In a process of its own: torch does them in another one, then the simulator here."""
    settings, first, count = job
    with surroundings.runtime_folder() as folder:
        environment = surroundings.with_virtual_gpu(folder, agent=False) | {"PYTORCH_CUDA_ALLOC_CONF": settings}
        program = (sys.executable, "-m", "tests.bench.programs.allocator", str(first), str(count))
        done = subprocess.run(
            (*program, str(folder)), env=environment, capture_output=True, text=True, timeout=1800, check=False
        )
        if done.returncode:
            raise RuntimeError(f"torch ended with {done.returncode}, {settings}: {done.stderr[-1000:]}")
        return settings, list(all_compared(folder, range(first, first + count)))


def _line(name: str, found: Sequence[Compared]) -> Line:
    equal, reserved = sum(each.equal for each in found), sum(not each.error for each in found)
    near = sum(100 * each.error <= _WORST for each in found)
    worst = 100 * max(each.error for each in found)
    events = sum(each.events for each in found)
    failed = sum(each.real["num_ooms"] for each in found)
    return Line(
        name,
        f"{equal:,} of {len(found):,} equal in all; reserved equal {reserved:,}, within {_WORST} % {near:,}, worst "
        f"{worst:.3f} %; {events:,} events, {failed:,} out of memory",
    )


def _difference(found: Compared) -> str:
    parts = [
        f"{name} {found.simulated[name]:,} of {real:,}"
        for name, real in found.real.items()
        if real != found.simulated[name]
    ]
    return "; ".join([*parts, f"block {found.elsewhere} is elsewhere"] if found.elsewhere >= 0 else parts)


# -- histories ---------------------------------------------------------------------------------


def _histories() -> Iterator[Line]:
    if not (_SNAPSHOTS / "index.json").exists():
        yield Line("histories", "no snapshots beside the checkout")
        return
    for case in json.loads((_SNAPSHOTS / "index.json").read_text(encoding="utf-8")):
        yield _history(_SNAPSHOTS / case["file"], *case["devices"].values())


def _history(path: pathlib.Path, right: dict[str, int]) -> Line:
    """All of them are older than torch 2.14. The index's peak is what was asked for, not what was given for it."""
    found = replayed(history(path), by_age=False)
    simulator = found.simulator
    pairs = (
        (simulator.reserved_bytes, right["reserved"]),
        (simulator.peak_reserved_bytes, right["replayed_peak_reserved"]),
        (simulator.allocated_bytes, right["allocated"]),
        (found.asked_rise_bytes, right["replayed_peak_allocated"] - right["replayed_start_allocated"]),
    )
    said = "reserved, its peak, allocated, asked for at the peak above the beginning: " + ", ".join(
        "equal" if own == told else f"{own:,} of {told:,}" for own, told in pairs
    )
    begun = "from nothing" if found.whole else "from what was there"
    placed = f"{found.placed:,} of {found.compared:,} addresses"
    met = all(own == told for own, told in pairs) and found.placed == found.compared
    return Line(path.stem, f"{said}; {placed}, {found.events:,} events, {begun}", "equal", met)


# -- speed -------------------------------------------------------------------------------------


def _speed() -> Iterator[Line]:
    """Processor time of allocations and frees alone, the fastest of three times, beside an empty loop's turns."""
    turns = max(_turns_a_second() for _ in range(3))
    for kind in ("training", "any size", "tiny", "edges"):
        numbers = [number for number in range(300) if allocations.KINDS[number % len(allocations.KINDS)] == kind]
        programs = [_plain(allocations.trace(number).operations) for number in numbers]
        rate = max(_events_a_second(programs) for _ in range(3))
        yield Line(
            f"events a second: {kind}",
            f"{rate:,.0f}, one for {turns / rate:.0f} turns of an empty loop",
            f"≥ {_EVENTS_A_SECOND:,}",
            rate >= _EVENTS_A_SECOND,
        )


def _plain(operations: Iterable[allocations.Operation]) -> list[tuple[int, int]]:
    """(bytes, 0) for an allocation, (-1, block) for a free."""
    kept = [each for each in operations if each[0] in {ALLOCATE, allocations.FREE}]
    return [(each[1], 0) if each[0] == ALLOCATE else (-1, each[1]) for each in kept]


def _events_a_second(programs: Sequence[Sequence[tuple[int, int]]]) -> float:
    begun = time.process_time()
    for operations in programs:
        allocator = CachingAllocator()
        allocate, free = allocator.allocate, allocator.free
        blocks: list[Block] = []
        for size, number in operations:
            if size >= 0:
                blocks.append(allocate(size))
            else:
                free(blocks[number])
    return sum(map(len, programs)) / (time.process_time() - begun)


def _turns_a_second() -> float:
    begun = time.process_time()
    for _ in range(2_000_000):
        pass
    return 2_000_000 / (time.process_time() - begun)
