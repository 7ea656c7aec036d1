"""What steps leave behind on a device, seen at the beginning of the forwards that were read, over the whole run."""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass
from typing import Optional

#: Floors kept on each level, the newest; each level takes every FANOUT-th of the one below. At two a second the three
#: reach back two minutes, half an hour and nine hours. The newest must be more than a leak takes (Policy.leak_steps).
FLOORS_KEPT = 256
FANOUT = 16
LEVELS = 3


@dataclass(frozen=True)
class Floor:
    """What is allocated on a device as a step's forward begins: what the steps before have left."""

    step: int  # how many were completed
    time_ns: int
    allocated_bytes: int
    num_blocks: Optional[int]


class GivenBack:
    """The largest rise so far that was followed by as large a fall: noise, a log that is cleared, a collector's turn.

    One floor alone that stands out is no rise: of every three that follow each other the middle one counts.
    """

    def __init__(self) -> None:
        self.most = 0
        self._newest: tuple[int, ...] = ()
        self._low: Optional[int] = None
        self._peak = 0

    def add(self, value: int) -> None:
        """Takes in the next value; O(1)."""
        self._newest = (*self._newest[-2:], value)
        if len(self._newest) < 3:
            return
        middle = sorted(self._newest)[1]
        if self._low is None or middle < self._low:
            if self._low is not None:
                self.most = max(self.most, self._peak - self._low)
            self._low = self._peak = middle
        elif middle >= self._peak:
            self._peak = middle
        else:
            self.most = max(self.most, min(self._peak - self._low, self._peak - middle))


class Floors:
    """The floors of one device: the newest one by one, older ones thinned out, and what was ever given back."""

    def __init__(self) -> None:
        self.levels: tuple[deque[Floor], ...] = tuple(deque(maxlen=FLOORS_KEPT) for _ in range(LEVELS))
        self.count = 0
        self.bytes_given_back = GivenBack()
        self.blocks_given_back = GivenBack()

    @property
    def newest(self) -> Optional[Floor]:
        """The newest; None while there is none."""
        return self.levels[0][-1] if self.levels[0] else None

    def add(self, floor: Floor) -> None:
        """Adds a floor of a step after the newest one's, and no other; O(1)."""
        newest = self.newest
        if newest is not None and floor.step <= newest.step:
            return
        every = 1
        for level in self.levels:
            if self.count % every:
                break
            level.append(floor)
            every *= FANOUT
        self.count += 1
        self.bytes_given_back.add(floor.allocated_bytes)
        if floor.num_blocks is not None:
            self.blocks_given_back.add(floor.num_blocks)

    def snapshot(self) -> Floors:
        """An independent copy."""
        twin = Floors()
        twin.levels = tuple(level.copy() for level in self.levels)
        twin.count = self.count
        twin.bytes_given_back = copy.copy(self.bytes_given_back)
        twin.blocks_given_back = copy.copy(self.blocks_given_back)
        return twin
