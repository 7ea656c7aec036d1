"""How sure a middle is: a bootstrap over what was measured in pairs."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: What is not told from zero because the machine was busy has not been shown.
_WIDEST = 0.04


@dataclass(frozen=True)
class Interval:
    """The mean of the middle half, and where 95 of 100 repetitions would have found it."""

    middle: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """Of shares and ratios: whether the interval is narrow enough to say anything. On a busy machine it is not."""
        return self.high - self.low <= _WIDEST

    def has(self, value: float) -> bool:
        """Whether the middle is not told from `value`."""
        return self.low <= value <= self.high

    def text(self, scale: float, digits: int = 1, sign: str = "+") -> str:
        """In units of which `scale` make one."""
        shown = [f"{number * scale:{sign}.{digits}f}" for number in (self.middle, self.low, self.high)]
        return f"{shown[0]} ({shown[1]} to {shown[2]})"


def interval(values: Sequence[float], rounds: int = 2000, seed: int = 1) -> Interval:
    """The middle of `values`, resampled `rounds` times."""
    chance = random.Random(seed)
    middles = sorted(_middle(chance.choices(values, k=len(values))) for _ in range(rounds))
    return Interval(_middle(values), middles[rounds // 40], middles[-rounds // 40])


def _middle(values: Sequence[float]) -> float:
    """Less moved by what is far out than the mean, and by chance than the median."""
    quarter = len(values) // 4
    return statistics.mean(sorted(values)[quarter : len(values) - quarter])
