"""The largest value that fits, in few runs: memory that grows with it is followed along a line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Optional

#: After so many guesses along a line the interval that is left is halved, whatever the line says.
_GUESSES = 5


@dataclass(frozen=True)
class Tried:
    """One value and what became of it; `need_bytes` is the device's peak, None where that is not known."""

    value: int
    fits: bool
    need_bytes: Optional[int]


@dataclass
class Search:
    """What was tried between two values, taken to need the more memory the larger they are."""

    low: int
    high: int
    room_bytes: Optional[int] = None
    tried: list[Tried] = field(default_factory=list)

    @property
    def best(self) -> Optional[int]:
        """The largest that is known to fit; None where the lowest does not."""
        return max((each.value for each in self.tried if each.fits), default=None)

    @property
    def worst(self) -> int:
        """The smallest that is known not to fit; one above the range where none is."""
        return min((each.value for each in self.tried if not each.fits), default=self.high + 1)

    @property
    def changes_nothing(self) -> bool:
        """Whether every value that was tried took the same memory, to the byte."""
        return len(self.tried) > 1 and len({(each.fits, each.need_bytes) for each in self.tried}) == 1

    @property
    def ended(self) -> bool:
        """Whether the answer is known: what fits is next to what does not, or is all of the range."""
        best = self.low - 1 if self.best is None else self.best
        return bool(self.tried) and self.worst - best <= 1

    def next_value(self) -> int:
        """What is to be tried next."""
        if not self.tried:
            return self.low
        best, worst = self.low - 1 if self.best is None else self.best, self.worst
        if len(self.tried) == 1:
            # Near enough to the first to fit, as a rule, and far enough to give a slope.
            return min(self.high, self.low + max(1, (self.high - self.low) // 8))
        if len(self.tried) == 2 and self.changes_nothing:
            return self.high  # what is not read fits with any value
        guess = self._along_a_line() if len(self.tried) < 2 + _GUESSES else None
        if guess is None:
            return (best + worst) // 2
        if guess >= worst:
            # The line was too bold: by one, as a rule; else it is no line.
            bold = self._in_a_row(fits=False)
            guess = self.high if worst > self.high else worst - 1 if bold < 2 else (best + worst) // 2
        elif guess <= best + 1:
            guess = best + 2 ** (max(1, self._in_a_row(fits=True) - 1) - 1)
        return max(best + 1, min(worst - 1, guess))

    def _in_a_row(self, *, fits: bool) -> int:
        """How many of the latest had this end."""
        count = 0
        for each in reversed(self.tried):
            if each.fits != fits:
                break
            count += 1
        return max(1, count)

    def _along_a_line(self) -> Optional[int]:
        """Where a line through values that fit meets the room: the highest, and one well below it.

        Memory is taken in pieces of megabytes, so that neighbours tell no slope.
        """
        known = sorted(
            (each.value, each.need_bytes) for each in self.tried if each.fits and each.need_bytes is not None
        )
        if len(known) < 2 or self.room_bytes is None:
            return None
        last, after = known[-1]
        first, before = max(each for each in known[:-1] if each == known[0] or each[0] <= (3 * last + self.low) // 4)
        slope = (after - before) / (last - first)
        if slope <= 0:
            return None
        guess = last + int((self.room_bytes - after) / slope)
        return guess if guess > last else last + 1


async def largest(search: Search, run: Callable[[int], Awaitable[Tried]]) -> Search:
    """Runs values until the largest that fits is known; the search itself, filled."""
    while not search.ended:
        search.tried.append(await run(search.next_value()))
    return search
