"""The search for the largest value that fits finds it, whatever memory grows like, and in few runs."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from memtui.planning.search import Search, Tried, largest

_PIECE = 20 << 20  # what the allocator takes at once


def _found(low: int, high: int, room: int, base: float, slope: float, bend: float = 0.0) -> tuple[Search, int | None]:
    """The search, and the true answer."""

    def need(value: int) -> int:
        return int(base + slope * value + bend * value**2) // _PIECE * _PIECE

    async def run(value: int) -> Tried:
        fits = need(value) <= room
        return Tried(value, fits, need(value) if fits else None)

    truth = max((value for value in range(low, high + 1) if need(value) <= room), default=None)
    return asyncio.run(largest(Search(low, high, room), run)), truth


_bytes = st.floats(0, 30 * 2**30)


@given(st.integers(1, 64), st.integers(0, 700), _bytes, st.floats(0, 2**31), st.floats(0, 2**22))
def test_it_finds_the_largest(low: int, more: int, base: float, slope: float, bend: float) -> None:
    search, truth = _found(low, low + more, 24 << 30, base, slope, bend)
    assert search.best == truth
    assert len({each.value for each in search.tried}) == len(search.tried)


@given(_bytes, st.floats(2**24, 2**31))
def test_ten_runs_do_where_memory_grows_along_a_line(base: float, slope: float) -> None:
    search, truth = _found(1, 256, 24 << 30, base, slope)
    assert search.best == truth
    assert len(search.tried) <= 10
