"""The thresholds of every judgement on the screen, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """When something is worth a word; times in nanoseconds, shares of a whole."""

    silent_after_ns: int = 3_000_000_000  # no frame for so long: a long call, or a stopped process
    tight_share: float = 0.05  # less than this of the device to spare is a warning
    stale_driver_ns: int = 5_000_000_000  # driver figures older than this are marked
    old_classification_ns: int = 2_000_000_000  # categories and blocks older than this are marked with their age
    holes_share: float = 0.05  # pinned holes worth a word
    growth_looks: int = 12  # looks at different steps over which growth must hold to be called growth
    growth_share: float = 0.005  # of what is allocated: a growth of less over these looks is no news
    growth_steps: int = 2_000  # a leak that fills the device within so many steps speaks in the verdict, …
    growth_ns: int = 86_400_000_000_000  # … or within this time
    leak_floors: int = 6  # as many steps' beginnings must have been read to call anything a leak …
    leak_steps: int = 130  # … over as many steps: a log that is cleared at shorter intervals has come down by then
    leak_sure: float = 2.6  # standard deviations by which a leak's bytes must be above nothing
    unseen_steps: int = 20  # after so many without one, evaluation and checkpoint are said to be in no forecast
    caught_steps: int = 20  # so many without an out-of-memory error and the last one, caught, is no warning any more
    turn_worse_ns: int = 1_000_000_000  # a verdict must have been worse for so long to have turned, …
    turn_better_ns: int = 10_000_000_000  # … and better for so long, twice that after each time it had turned back
    recent_ns: int = 60_000_000_000  # an event younger than this speaks in the verdict


DEFAULT = Policy()
