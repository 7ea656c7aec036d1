"""Short steps are not all watched alike: between two ticks only their ends are noted, and their evaluations.

Of a training that makes several steps between two frames, no frame shows more than one. What the others would tell
costs the training some 15 µs each, of 2 ms. So after a tick the agent naps while the steps go on alike, and watches
again in time for the next: the phase that a frame shows is always one that was seen to begin.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .notes import Notes
    from .phases import Phases

#: Steps that last longer are all watched.
_LONGEST_STEP_NS = 25_000_000
#: What is left of a tick's period after a nap: so many steps, the first of them to rise in, and what delays them.
_STEPS_AWAKE, _MARGIN_NS = 2.5, 2_000_000
#: Among other notes, where one begins.
NAP = ("nap", 0, 0)


class Nap:
    """Whether beginnings are noted. The training's thread lies down and rises at a step's end; others only rouse it.

    A nap is one note, where it begins; the ends of steps in it are here. What the training's thread does is written out
    where it does it.
    """

    __slots__ = ("asleep", "ends", "key", "until_ns", "used")

    def __init__(self) -> None:
        self.asleep = False
        self.until_ns = 0
        self.key = 0  # of the only optimizer
        self.used = False  # whether there may have been one
        self.ends: list[int] = []  # monotonic nanoseconds of its steps' ends

    def taken(self) -> list[int]:
        """The ends so far, which are the caller's now; one that comes meanwhile is for the next time."""
        ends = self.ends[:]
        del self.ends[: len(ends)]
        return ends

    def allow(self, phases: Phases, notes: Notes, period_ns: int) -> None:
        """After a tick, from the agent's thread: whether the next period may begin with a nap."""
        step_ns = phases.last_step_ns
        only = phases.only
        alike = notes.ended_by == "optimizer_end" and not phases.explicit
        if only is not None and alike and step_ns is not None and step_ns <= _LONGEST_STEP_NS:
            self.key, self.used = only, True
            self.until_ns = time.monotonic_ns() + period_ns - int(_STEPS_AWAKE * step_ns) - _MARGIN_NS

    def rouse(self) -> None:
        """From any thread: everything is noted from now on."""
        self.until_ns = 0
        self.asleep = False
