"""Forecasts that were made are held against what then happened, once each, in the events."""

from __future__ import annotations

from dataclasses import replace

from memtui.analysis.errors import SCORED, error_share
from memtui.analysis.events import event_text
from memtui.analysis.scores import Scorer
from memtui.session.readings import SteadyStep
from memtui.wire.frames import Event
from tests.support.sessions import MIB, Run, classified


def _through_the_first_optimizer(run: Run) -> None:
    run.frame(96 * MIB, phase="forward", boundary="forward_start", step_peak_bytes=96 * MIB)
    run.adam(96 * MIB)
    run.frame(216 * MIB, phase="backward", boundary="backward_end", step_peak_bytes=360 * MIB)
    run.frame(216 * MIB, phase="optimizer", boundary="optimizer_start", step_peak_bytes=360 * MIB)
    run.end_step(408 * MIB, 500 * MIB, classification=classified(408 * MIB, optimizer_state=192 * MIB))
    run.adam(96 * MIB, state=192 * MIB, steps=1)


def test_the_first_step_is_scored_when_it_is_over() -> None:
    """GIVEN a prediction of 504 MiB and a step that took 500, THEN the event says both, and by how much."""
    run, scorer = Run(), Scorer()
    assert scorer.due(run.session) == []
    _through_the_first_optimizer(run)

    (event,) = scorer.due(run.session)

    assert event.name == SCORED
    assert event.figures == {"predicted_bytes": 504 * MIB, "actual_bytes": 500 * MIB, "actual_exact": 1}
    assert error_share(event) == 504 / 500 - 1
    text = "first step: forecast 504.0 MiB, actual 500.0 MiB, +0.8 %: after the first backward"
    assert event_text(event) == text


def test_an_error_that_may_be_none_is_not_said() -> None:
    """GIVEN that at least so much was reached, THEN only a forecast that was too low is known to be wrong."""

    def said(actual: int) -> str:
        figures = {"predicted_bytes": 658 * MIB, "actual_bytes": actual * MIB, "actual_exact": 0}
        return event_text(Event(SCORED, 0, 20, "", "cuda:0", figures, "later steps, after the first backward"))

    assert said(530) == "later steps: forecast 658.0 MiB, actual ≥ 530.0 MiB: after the first backward"
    over = "later steps: forecast 658.0 MiB, actual ≥ 700.0 MiB, -6.0 % at least: after the first backward"
    assert said(700) == over


def test_each_is_told_once() -> None:
    """Also by a scorer that comes later, where the event is there already."""
    run, scorer = Run(), Scorer()
    _through_the_first_optimizer(run)
    (event,) = scorer.due(run.session)
    run.session.apply(event, event.time_ns)
    run.end_step(408 * MIB, 552 * MIB)

    assert scorer.due(run.session) == []
    assert Scorer().due(run.session) == []


def test_later_steps_are_scored_after_enough_of_them() -> None:
    """GIVEN 20 steps beside the first, THEN what was predicted of them at its optimizer is held against the highest."""
    run, scorer = Run(), Scorer()
    _through_the_first_optimizer(run)
    told = scorer.due(run.session)
    for _ in range(25):
        run.end_step(408 * MIB, 552 * MIB)
        told += scorer.due(run.session)

    assert [event.text for event in told] == [
        "first step, after the first backward",
        "peak by step 10, from whole steps",
        "peak by step 20, from whole steps",
        "later steps, after the first backward",
    ]
    assert told[3].figures["predicted_bytes"] == told[2].figures["actual_bytes"] == 552 * MIB


def test_nothing_is_scored_that_was_not_predicted() -> None:
    """GIVEN an agent that came when steps were over, THEN there is nothing to hold against them."""
    run, scorer = Run(), Scorer()
    run.frame(408 * MIB, phase="forward", step=7)
    run.end_step(408 * MIB, 552 * MIB)

    assert scorer.due(run.session) == []


def test_whole_steps_are_scored_as_their_number_doubles() -> None:
    """GIVEN a longer batch at step 15, THEN the forecast of the first ten steps was too low, and the next one right."""
    run, scorer = Run(), Scorer()
    _through_the_first_optimizer(run)
    told = []
    for number in range(2, 42):
        run.end_step(408 * MIB, (660 if number == 15 else 600) * MIB)
        told += [event for event in scorer.due(run.session) if event.text.endswith("from whole steps")]

    assert [event.text.partition(",")[0] for event in told] == [f"peak by step {number}" for number in (10, 20, 40)]
    assert [round(error_share(event) or 0, 3) for event in told] == [0, -0.091, 0]
    assert event_text(told[1]) == "peak by step 20: forecast 600.0 MiB, actual 660.0 MiB, -9.1 %: from whole steps"


def test_whole_steps_before_the_state_are_not_scored() -> None:
    """GIVEN an optimizer that has not stepped yet, THEN what it will make is predicted, and may be long in coming."""
    run, scorer = Run(), Scorer()
    run.adam(96 * MIB)
    for _ in range(40):
        run.end_step(216 * MIB, 360 * MIB)
        assert scorer.due(run.session) == []


def _done_again(run: Run, allocated: int, reserved: int) -> SteadyStep:
    return SteadyStep(run.now_ns, "cuda:0", 1, allocated, reserved, True, "", 0, None, None, None, 504 * MIB, 600 * MIB)


def test_a_step_that_was_done_again_is_held_against_the_counters() -> None:
    """Of the peaks that torch has counted since the program began: what was higher before the forecast stays so."""
    run, scorer = Run(), Scorer()
    _through_the_first_optimizer(run)
    run.end_step(408 * MIB, 552 * MIB)
    run.session.apply_steady(_done_again(run, 552 * MIB, 580 * MIB))
    scorer.due(run.session)
    told: list[Event] = []
    for _ in range(21):
        run.end_step(408 * MIB, 552 * MIB, allocated_peak_bytes=552 * MIB, reserved_peak_bytes=620 * MIB)
        told += [event for event in scorer.due(run.session) if "done again" in event.text]

    assert [event.text for event in told] == [
        "peak allocated, step 2 done again",
        "peak reserved, step 2 done again",
    ]
    assert [round(1e4 * (error_share(event) or 0)) for event in told] == [0, round(1e4 * (600 / 620 - 1))]


def test_one_that_grows_with_every_step_is_not() -> None:
    """Its peak depends on how many steps were done again."""
    run, scorer = Run(), Scorer()
    _through_the_first_optimizer(run)
    run.session.apply_steady(replace(_done_again(run, 900 * MIB, 900 * MIB), growth_bytes=MIB))
    told: list[Event] = []
    for _ in range(25):
        run.end_step(408 * MIB, 552 * MIB, allocated_peak_bytes=552 * MIB, reserved_peak_bytes=620 * MIB)
        told += [event for event in scorer.due(run.session) if "done again" in event.text]
    assert told == []
