"""Bytes that are known to lie between two bounds, and what can surely be said of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Optional

_POWERS = {"b": 0, "byte": 0, "bytes": 0, "k": 1, "m": 2, "g": 3, "t": 4}
#: 2^64 is how a driver that keeps no account says so; nothing of half of that exists.
_NOT_AVAILABLE = 2**63
_MOST_DIGITS = 24


@dataclass(frozen=True)
class Interval:
    """From `low` to `high` bytes, both possible."""

    low: int
    high: int

    @classmethod
    def exactly(cls, size_bytes: int) -> Interval:
        """Of one figure that is known to the byte."""
        return cls(size_bytes, size_bytes)

    @property
    def middle(self) -> int:
        """What is shown of it."""
        return (self.low + self.high) // 2

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low)

    def at_least_nothing(self) -> Interval:
        """Without its part below 0: what rounding alone has put there."""
        return Interval(max(0, self.low), max(0, self.high))

    def with_(self, other: Interval) -> Interval:
        """From the lower of the low bounds to the higher of the high ones."""
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def above(self, other: Interval) -> Optional[bool]:
        """Whether it is more than `other`: surely, surely not, or None where the bounds allow both."""
        if self.low > other.high:
            return True
        return False if self.high <= other.low else None


NOTHING = Interval(0, 0)


@dataclass(frozen=True)
class Printed:
    """A size as a message has it, and the bytes that print so; None where it stands for "not available"."""

    text: str
    interval: Optional[Interval]


def read_printed(digits: str, unit: str) -> Printed:
    """Of "1.28" and "GiB": every whole number of bytes that prints so.

    PyTorch prints two decimals of a binary unit (c10's format_size), rounded half to even; old Metal builds write MB
    and GB for the same units. As many decimals as there are tell the width, so that a shortened "20 MiB" is 19.5
    to 20.5.
    """
    letter = unit.lower() if unit.lower() in _POWERS else unit[:1].lower()
    text = f"{digits} {unit}"
    if len(digits) > _MOST_DIGITS:
        return Printed(text, None)
    scale, value = 1024 ** _POWERS[letter], Fraction(digits)
    decimals = len(digits.partition(".")[2])
    if value * scale >= _NOT_AVAILABLE:
        return Printed(text, None)
    if scale == 1:
        return Printed(text, Interval.exactly(round(value)))
    half = Fraction(1, 2 * 10**decimals)
    low, high = max(0, math.ceil((value - half) * scale)), math.floor((value + half) * scale)
    return Printed(text, Interval(low + (not _prints(low, scale, digits)), high - (not _prints(high, scale, digits))))


def as_printed(size_bytes: int) -> str:
    """A size as PyTorch prints it, with two decimals (c10's format_size): so it is found again in the message."""
    if size_bytes <= 1024:
        return f"{size_bytes} bytes"
    power = 1 if size_bytes <= 1 << 20 else 2 if size_bytes <= 1 << 30 else 3
    return f"{size_bytes / 1024**power:.2f} {'KMG'[power - 1]}iB"


def _prints(size: int, scale: int, digits: str) -> bool:
    """Whether `size` prints as `digits`; a bound in the middle between two prints as one of them only."""
    decimals = len(digits.partition(".")[2])
    return Decimal(f"{size / scale:.{decimals}f}") == Decimal(digits)
