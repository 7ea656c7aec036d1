"""How fragmented a device's memory was over the steps, as its blocks were read."""

from __future__ import annotations

from typing import NamedTuple

from memtui.wire.frames import BlockSummary

#: Kept over the whole run; when there are so many, two become one, and from then on twice as many steps are one.
FRAGMENTS_KEPT = 512
#: The same blocks in two frames have the same instant but for rounding.
_SAME_NS = 1_000_000


class Fragment(NamedTuple):
    """One step's worst: the most that was pinned, and the largest free block then."""

    step: int  # how many were completed
    pinned_bytes: int
    largest_free_bytes: int


class Fragments:
    """One device's steps that were read, the oldest first; of several that are one, the worst."""

    def __init__(self) -> None:
        self.found: list[Fragment] = []
        self._every = 1
        self._steps = 0
        self._last_ns = -_SAME_NS - 1
        self._last_step = -1

    def add(self, step: int, blocks: BlockSummary, measured_ns: int) -> None:
        """Takes in what blocks read at `measured_ns` say, once; O(1) but for the thinning."""
        if measured_ns <= self._last_ns + _SAME_NS or step < self._last_step:
            return
        self._last_ns = measured_ns
        self._steps += step > self._last_step
        self._last_step = step
        fragment = Fragment(step, blocks.inactive_split_bytes, blocks.largest_free_block_bytes)
        if len(self.found) * self._every >= self._steps:
            self.found[-1] = _worse(self.found[-1], fragment)
            return
        self.found.append(fragment)
        if len(self.found) > FRAGMENTS_KEPT:
            pairs = zip(self.found[::2], self.found[1::2])
            last = self.found[-1:] if len(self.found) % 2 else []
            self.found = [*(_worse(*pair) for pair in pairs), *last]
            self._every *= 2

    def snapshot(self) -> Fragments:
        """An independent copy."""
        twin = Fragments()
        twin.__dict__.update(self.__dict__)
        twin.found = self.found.copy()
        return twin


def _worse(first: Fragment, second: Fragment) -> Fragment:
    return second if second.pinned_bytes > first.pinned_bytes else first
