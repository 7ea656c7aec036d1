"""What steps leave behind: how much is kept of a long run, and what was given back."""

from __future__ import annotations

import pytest

from memtui.session.floors import FANOUT, FLOORS_KEPT, Floor, Floors, GivenBack


def filled(count: int) -> Floors:
    floors = Floors()
    for step in range(count):
        floors.add(Floor(step, step, 1000 + step, step))
    return floors


def test_a_long_run_is_thinned_out() -> None:
    """GIVEN a day of floors, THEN the newest are there one by one, and ever fewer reach ever further back."""
    floors = filled(200_000)

    assert [len(level) for level in floors.levels] == [FLOORS_KEPT] * 3
    newest, thinned, thinnest = ([floor.step for floor in level] for level in floors.levels)
    assert newest == list(range(200_000 - FLOORS_KEPT, 200_000))
    assert {after - before for before, after in zip(thinned, thinned[1:])} == {FANOUT}
    assert {after - before for before, after in zip(thinnest, thinnest[1:])} == {FANOUT * FANOUT}


def test_a_step_counts_once() -> None:
    """GIVEN several forwards of one step, or a history that is sent again, THEN only the first says what was left."""
    floors = filled(3)
    floors.add(Floor(2, 9, 5000, 50))
    floors.add(Floor(1, 9, 5000, 50))

    assert floors.count == 3
    assert floors.newest == Floor(2, 2, 1002, 2)


@pytest.mark.parametrize(
    ("values", "most"),
    [
        ([5, 5, 5, 5, 5], 0),
        (list(range(30)), 0),
        ([90, 90, 90, 5, 5, 5, 5], 0),  # there before anybody looked: nothing had risen
        ([5, 5, 5, 90, 5, 5, 5], 0),  # one floor alone
        ([5, 5, 20, 20, 20, 5, 5], 15),
        ([5, 5, 20, 20, 20, 12, 12, 12], 8),
        ([5, 5, 20, 20, 20, 2, 2, 2], 15),
        ([5, 5, 20, 20, 20, 5, 5, 40, 40, 40, 33, 33], 15),
        ([0, 0, 50, 50, 10, 10, 60, 60, 20, 20], 40),  # teeth on top of a leak
    ],
)
def test_what_was_given_back(values: list[int], most: int) -> None:
    """The largest rise that was followed by as large a fall."""
    given_back = GivenBack()
    for value in values:
        given_back.add(value)

    assert given_back.most == most


def test_a_snapshot_goes_on_alone() -> None:
    """For going back in time."""
    floors = filled(40)
    twin = floors.snapshot()
    for step in range(40, 60):
        floors.add(Floor(step, step, 10 if step < 50 else 0, 0))

    assert twin.count == 40
    assert twin.newest == Floor(39, 39, 1039, 39)
    assert (twin.bytes_given_back.most, twin.blocks_given_back.most) == (0, 0)
