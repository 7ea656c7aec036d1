"""How a history is recorded: by what it would cost a step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.agent.history_way import SHARE, Load, Way, entry_ns, way_for

MILLISECOND = 1_000_000
AT_ONCE, LATER, BARE_LATER, BARE = Way(True, False), Way(True, True), Way(False, True), Way(False, False)


@pytest.mark.parametrize(
    ("milliseconds", "later", "way"),
    [(88, True, AT_ONCE), (88, False, AT_ONCE), (40, True, LATER), (40, False, BARE), (24, True, BARE_LATER)],
)
def test_the_shorter_the_step_the_less(milliseconds: int, later: bool, way: Way) -> None:
    """A GPT of twelve layers: 825 allocations, 590 blocks."""
    found, notice = way_for(Load(825, 590, milliseconds * MILLISECOND, 333.0), stacks=False, later=later)
    assert found == way
    assert bool(notice) == (not way.stacks)
    if notice:
        assert f"825 allocations in {milliseconds}.0 ms" in notice


@given(
    st.builds(Load, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**11), st.floats(50, 10_000)),
    st.booleans(),
    st.booleans(),
)
def test_it_fits_or_is_the_cheapest(load: Load, stacks: bool, later: bool) -> None:
    """Stacks that are asked for are never left out, and nothing is read later where that cannot be."""
    way, notice = way_for(load, stacks=stacks, later=later)
    others = [
        Way(with_stacks, read_later)
        for with_stacks in ((True,) if stacks else (True, False))
        for read_later in ((True, False) if later else (False,))
    ]
    assert way in others
    if load.fits(way):
        assert load.share(way) < SHARE
    else:
        assert not any(map(load.fits, others))
        assert load.share(way) == min(map(load.share, others))
    assert bool(notice) == (not way.stacks)


def test_an_entry_takes_time() -> None:
    assert 0 < entry_ns() < MILLISECOND
