"""How an allocator's history is recorded, so that the steps do not take much longer: with stacks, and read when."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

#: Entries that are kept for each block that is made and freed.
ENTRIES_A_BLOCK = 3
#: Of a step's time recording it may take so much, of which an estimate leaves a part.
SHARE, _SAFE = 0.15, 0.11
#: What recording costs, in the time that Python takes to make what torch makes of one entry: whatever is recorded, and
#: for each live block, which is read; for each entry, recorded and read, without stacks and with those of 60 calls.
#: Measured with torch 2.14 in a loop: 1.7 for a block, 0.2 and 1.2, 1.6 and 3.1; a training finds its memory colder.
_ALWAYS, _BLOCK = 1200, 2.5
_RECORDED, _READ = (0.4, 1.5), (2.2, 4.0)
#: What is read while a backward pass runs may take so much of a step, of which the pass takes more, as a rule.
_LATER = 0.1
_TRIES, _TRIED_ENTRIES = 5, 40


class Way(NamedTuple):
    """One of the ways to record."""

    stacks: bool
    later: bool  # its events are read some time after, where the training does not wait for it


class Load(NamedTuple):
    """What a step is like, and how fast this machine is."""

    allocations: int
    live_blocks: int
    step_ns: int
    entry_ns: float

    def share(self, way: Way) -> float:
        """Of the step's time, about what the training waits for it, where one step is recorded."""
        recorded = self._share(_ALWAYS + _BLOCK * self.live_blocks, _RECORDED[way.stacks])
        return recorded if way.later else recorded + self._share(0, _READ[way.stacks])

    def fits(self, way: Way) -> bool:
        """Whether that is little enough."""
        return self.share(way) <= _SAFE and (not way.later or self._share(0, _READ[way.stacks]) <= _LATER)

    def _share(self, once: float, each: float) -> float:
        entries = once + each * ENTRIES_A_BLOCK * self.allocations
        return entries * self.entry_ns / max(1, self.step_ns)


def way_for(load: Load, *, stacks: bool, later: bool) -> tuple[Way, str]:
    """The first way that costs little enough, else the cheapest; and where stacks are left out, that they are.

    `stacks`: they are wanted whatever they cost. `later`: events can be read some time after. They are only where they
    would cost too much: at the end of what is recorded nothing comes after it.
    """
    ways = [Way(True, False), *([Way(True, True)] if later else []), *([] if stacks else [Way(False, later)])]
    way = next(filter(load.fits, ways), ways[-1])
    if way.stacks:
        return way, ""
    return way, (
        f"call stacks were left out: a step of {load.allocations:,} allocations in {load.step_ns / 1e6:,.1f} ms would "
        f"take about {load.share(Way(True, False)):.0%} longer with them, about {load.share(way):.0%} without"
    )


def entry_ns() -> float:
    """How long Python takes on this machine to make what torch makes of an entry."""
    taken = []
    for _ in range(_TRIES):
        begun = time.thread_time_ns()
        for number in range(_TRIED_ENTRIES):
            _entry(number)
        taken.append((time.thread_time_ns() - begun) / _TRIED_ENTRIES)
    return sorted(taken)[_TRIES // 2]


def _entry(number: int) -> dict[str, Any]:
    place = {"action": "alloc", "addr": number << 20, "size": 512, "stream": 0, "time_us": number << 30}
    return {**place, "compile_context": "N/A", "user_metadata": "", "frames": [number], "pool_id": (0, number)}
