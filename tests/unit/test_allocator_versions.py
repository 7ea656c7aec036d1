"""The rule by which torch's versions choose among equally large free blocks, and that it reaches the replay."""

from __future__ import annotations

import pytest

from memtui.analysis.allocator.replay import replayed
from memtui.analysis.allocator.versions import tie_rules
from memtui.analysis.analyst import Analyst
from memtui.session.readings import SteadyStep
from memtui.wire.frames import RecordedStep
from tests.support.sessions import Run
from tests.unit.test_step_replay import INPUTS, TEMPORARIES, made

BY_AGE, BY_ADDRESS = 32, 0  # where the last block goes, in MiB


def step(place: int) -> RecordedStep:
    """A new segment lies below the one that was there; both are free when a block is asked for that fits either."""
    rows = [(-1, 1, 16, INPUTS, 32), (0, 2, 16, TEMPORARIES, 0), (3, -1, 16, INPUTS, place)]
    return made(rows, 4, (32, 16))


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        ("1.13.1", (False,)),
        ("2.9.1+cu128", (False,)),
        ("2.11.0", (False,)),
        ("2.12.1", (True, False)),
        ("2.13.0+cu130", (True, False)),
        ("2.14.1+cu130", (True,)),
        ("2.14.0a0+git5c48869", (True,)),
        ("3.0.0", (True,)),
        ("", (True, False)),
        ("unknown", (True, False)),
    ],
)
def test_the_rule_of_a_version(torch: str, expected: tuple[bool, ...]) -> None:
    assert tie_rules(torch) == expected


@pytest.mark.parametrize("place", [BY_AGE, BY_ADDRESS])
def test_a_step_is_done_again_by_the_rule_of_its_torch(place: int) -> None:
    """Each rule explains the addresses that its versions gave, and not those of the others."""
    found = step(place)
    assert replayed(found, torch="2.14.1").exact is (place == BY_AGE)
    assert replayed(found, torch="2.11.0").exact is (place == BY_ADDRESS)


@pytest.mark.parametrize("place", [BY_AGE, BY_ADDRESS])
@pytest.mark.parametrize("torch", ["2.12.0", "2.13.0", ""])
def test_where_the_rule_is_unknown_the_step_tells_it(torch: str, place: int) -> None:
    assert replayed(step(place), torch=torch).exact


@pytest.mark.parametrize(("torch", "exact"), [("2.11.0+cu128", True), ("2.14.1+cu130", False)])
def test_the_analyst_asks_the_session_which_torch_it_is(torch: str, exact: bool) -> None:
    run = Run(torch=torch)
    run.frame(16 << 20)
    run.session.apply(step(BY_ADDRESS), run.now_ns)
    analyst = Analyst()
    found: list[SteadyStep] = []
    while not found:
        found = [each for each in analyst(run.session) if isinstance(each, SteadyStep)]
    assert [each.exact for each in found] == [exact]
