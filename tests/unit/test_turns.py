"""Verdicts that turn are events: soon where they get worse, later where they get better, and not to and fro."""

from __future__ import annotations

from memtui.analysis.events import TURNED, event_lines, event_text
from memtui.analysis.policy import DEFAULT
from memtui.analysis.turns import Turns
from memtui.wire.frames import Event
from tests.support.sessions import GIB, Run

CUDA = "cuda:0"


class Watched(Run):
    """A run of 10 GiB at its peak on a device of 24, most of which another process may take."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns(DEFAULT)
        self.told: list[Event] = []
        self.adam(GIB, state=2 * GIB, steps=1)
        for _ in range(3):
            self.end_step(4 * GIB, 10 * GIB)

    def others(self, gib: int, tenths: int) -> list[Event]:
        """What is told while others hold that much for so many tenths of a second."""
        before = len(self.told)
        for _ in range(tenths):
            self.driver((5 + gib) * GIB, 5 * GIB)
            self.frame(4 * GIB, 4 * GIB, phase="forward")
            for event in self.turns.due(self.session):
                self.session.apply(event, self.now_ns)
                self.told.append(event)
        return self.told[before:]


def test_a_verdict_that_turns_is_told_once() -> None:
    """GIVEN others that take the device, and leave it again."""
    run = Watched()
    assert run.others(1, 50) == []

    (worse,) = run.others(16, 100)
    (better,) = run.others(1, 200)

    said = "does not fit, short by 3.0 GiB: predicted peak 27.0 GiB of 24.0 (before: fits)"
    assert (worse.name, event_text(worse)) == (TURNED, said)
    assert event_text(better) == "fits, 50 % to spare: predicted peak 12.0 GiB of 24.0 (before: does not fit)"
    assert [line.level for line in event_lines(run.session, CUDA)] == ["good", "bad"]


def test_what_passes_at_once_is_no_turn() -> None:
    run = Watched()
    for _ in range(20):
        assert run.others(16, 7) == []
        assert run.others(1, 7) == []


def test_to_and_fro_is_told_less_and_less() -> None:
    """GIVEN others that come for 12 s and go for 12 s, twenty times, THEN a few events tell it."""
    run = Watched()
    for _ in range(20):
        run.others(16, 120)
        run.others(1, 120)
    assert [event.figures["answer"] for event in run.told] == [2, 0, 2]


def test_another_that_comes_later_says_nothing_twice() -> None:
    """GIVEN an event that is in the session already, as after a reconnection or in a log."""
    run = Watched()
    run.others(16, 20)
    run.turns = Turns(DEFAULT)
    assert run.others(16, 20) == []


def test_a_program_that_begins_too_large_is_told() -> None:
    """Nothing was said before, and it did not fit from the first word on."""
    run = Watched()
    (event,) = run.others(16, 20)
    assert event.figures == {"answer": 2, "before": 0}
    run.session.ended(run.now_ns, 0)
    assert run.others(1, 300) == []


def test_an_answer_of_another_version_is_its_text() -> None:
    event = Event(TURNED, 1, 1, "forward", CUDA, {"answer": 9, "before": 9}, "something else")
    assert event_text(event) == "something else"
    run = Run()
    run.session.apply(event, 0)
    assert event_lines(run.session, CUDA)[0].level == "bad"
