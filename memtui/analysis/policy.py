"""The thresholds of every judgement on the screen, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """When something is worth a word; times in nanoseconds, shares of the device's total."""

    silent_after_ns: int = 3_000_000_000  # no frame for so long: a long call, or a stopped process
    tight_share: float = 0.05  # less than this to spare is a warning
    stale_driver_ns: int = 5_000_000_000  # a driver figure older than this is marked
    old_classification_ns: int = 2_000_000_000  # categories older than this are marked with their age
    holes_share: float = 0.05  # pinned holes worth a word, of reserved
    growth_steps: int = 10  # step ends over which growth must be monotone to be called growth


DEFAULT = Policy()
