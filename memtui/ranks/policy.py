"""The thresholds of every judgement between ranks, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RanksPolicy:
    """When a difference is worth a word; times in nanoseconds, shares of a whole."""

    unlike_share: float = 0.05  # of the others' median: memory that differs by less is alike …
    unlike_bytes: int = 16 << 20  # … and by fewer bytes than libraries and rounding come to
    same_part_share: float = 0.02  # parameters of two ranks that differ by less are the same part of the model
    slow_share: float = 0.05  # a step, or a forward, that is longer by this much than the others' …
    slow_ns: int = 2_000_000  # … and by this much
    silent_ns: int = 3_000_000_000  # no frame for so long
    stalled_ns: int = 5_000_000_000  # no step for so long, …
    stalled_steps: float = 5.0  # … and for as long as so many of its steps take
    alone_ns: int = 1_500_000_000  # so long after an end, those that were before it are known
    unsure_ns: int = 5_000_000_000  # so long one that is heard no more may turn out to have ended before
    together_ns: int = 30_000_000_000  # ends within this time of a failure follow from it
    looks: int = 64  # the newest looks that say what a rank is made of


DEFAULT = RanksPolicy()
