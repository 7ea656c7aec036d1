"""Ranks and their differences in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MOST_NAMED = 6


def ranks(numbers: Iterable[int]) -> str:
    """ "rank 5", "ranks 0 and 3", "ranks 1 to 7", "ranks 0, 2, 5, 9, 11, 14 and 20 more"."""
    found = sorted(set(numbers))
    return f"{'rank' if len(found) == 1 else 'ranks'} {bare(found)}"


def bare(numbers: Sequence[int]) -> str:
    """The same without the word."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else list(map(str, run))
    if len(parts) > _MOST_NAMED:
        return f"{', '.join(parts[:_MOST_NAMED])} and {len(numbers) - _MOST_NAMED} more"
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def kinds(category: str) -> str:
    """A category in a sentence: "optimizer state"."""
    return category.replace("_", " ")
