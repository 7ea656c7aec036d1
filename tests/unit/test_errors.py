"""How sure a forecast is: by its own past errors, else by a benchmark's; and what the verdict makes of it."""

from __future__ import annotations

import pytest

from memtui.analysis.build import build_view
from memtui.analysis.errors import BENCHMARKED, SCORED, Interval, Stage, interval_of
from memtui.session.readings import SteadyStep
from memtui.wire.frames import Event
from tests.support.sessions import GIB, MIB, Run

CUDA = "cuda:0"


def score(run: Run, text: str, predicted: int, actual: int, *, exact: bool = True, device: str = CUDA) -> None:
    """A forecast whose truth has come."""
    run.now_ns += 1
    figures = {"predicted_bytes": predicted, "actual_bytes": actual, "actual_exact": int(exact)}
    run.session.apply(Event(SCORED, run.now_ns, 1, "backward", device, figures, text), run.now_ns)


def steady(run: Run, peak: int = 10 * GIB, used: int = 12 * GIB) -> None:
    """Whole steps with state, on a device of 24 GiB of which 1 GiB is used beside the allocator's."""
    run.adam(GIB, state=2 * GIB, steps=1)
    for _ in range(3):
        run.end_step(4 * GIB, peak, reserved=used - GIB)
    run.driver(used, used)
    run.frame(4 * GIB, used - GIB, phase="forward")


def before_its_optimizer(run: Run, peak: int) -> None:
    """The first step up to its optimizer, with 1 GiB used beside the allocator's, whose predicted peak is `peak`."""
    run.frame(2 * GIB, phase="forward", boundary="forward_start")
    run.adam(2 * GIB)
    backward = peak - 4 * GIB  # Adam's state comes on top of it
    run.frame(4 * GIB, 4 * GIB, phase="backward", boundary="backward_end", step_peak_bytes=backward)
    run.driver(5 * GIB, 5 * GIB)
    run.frame(4 * GIB, 4 * GIB, phase="optimizer", boundary="optimizer_start", step_peak_bytes=backward)


@pytest.mark.parametrize("stage", ["first forward", "first backward", "recorded step"])
def test_before_any_was_scored_it_is_the_benchmarks(stage: Stage) -> None:
    assert interval_of(Run().session, CUDA, stage) == Interval(BENCHMARKED[stage], BENCHMARKED[stage], 0)


def test_of_whole_steps_nothing_is_said_beforehand() -> None:
    """Whether later steps are as high is the program's own affair."""
    run = Run()
    steady(run)
    assert interval_of(run.session, CUDA, "whole steps") is None
    assert build_view(run.session, CUDA, run.now_ns).forecast[0] == (
        "peak allocated 10.0 GiB predicted: highest step so far (step 2)"
    )


def test_its_own_errors_go_before() -> None:
    """Of its stage and its device alone; the last four of them, of which the largest is told."""
    run = Run()
    steady(run)
    score(run, "peak by step 10, from whole steps", 500 * MIB, 1000 * MIB)  # four newer ones are there
    for step, actual in ((20, 1000), (40, 1030), (80, 1000), (160, 1010)):
        score(run, f"peak by step {step}, from whole steps", 1000 * MIB, actual * MIB)
    score(run, "peak by step 160, from whole steps", 500 * MIB, 1000 * MIB, device="cuda:1")
    score(run, "first step, after the first forward", 500 * MIB, 1000 * MIB)

    found = interval_of(run.session, CUDA, "whole steps")

    assert found is not None
    assert (found.below, round(found.above, 6), found.own) == (0, 0.03, 4)
    assert build_view(run.session, CUDA, run.now_ns).forecast[0] == (
        "peak allocated 10.0 GiB +3.0 % predicted: highest step so far (step 2) · interval from 4 of its own"
    )


def test_a_truth_that_is_a_lower_bound_tells_only_what_was_missed() -> None:
    """GIVEN at least as much as predicted came, THEN that counts; GIVEN at least less, THEN nothing is known by it."""
    run = Run()
    score(run, "step 3 done again", 1000 * MIB, 900 * MIB, exact=False)
    assert interval_of(run.session, CUDA, "recorded step") == Interval(0.001, 0.001, 0)
    score(run, "step 4 done again", 1000 * MIB, 1100 * MIB, exact=False)
    found = interval_of(run.session, CUDA, "recorded step")
    assert found is not None
    assert (round(found.above, 6), found.own) == (0.1, 1)


def test_a_wide_one_says_so() -> None:
    assert Interval(0.06, 0.06, 0).source == "wide interval from the errors of a benchmark"
    assert (Interval(0.06, 0.06, 0).text, Interval(0.0, 0.12, 2).text) == ("±6.0 %", "+12.0 %")
    assert (Interval(0.003, 0.003, 4).source, Interval(0.0, 0.0, 1).text) == ("interval from 4 of its own", "±0.0 %")


@pytest.mark.parametrize(
    ("peak", "level", "text"),
    [
        (21 * GIB - 200 * MIB, "good", "fits, 9 % to spare: predicted peak 21.8 GiB of 24.0"),
        (22 * GIB, "warning", "may not fit, 4 % to spare: predicted peak 23.0 GiB of 24.0, gradients may stay"),
        (23 * GIB - 60 * MIB, "warning", "may not fit, 0 % to spare: predicted peak 23.9 GiB of 24.0, ±1.0 %"),
        (
            23 * GIB + 60 * MIB,
            "warning",
            "may not fit, short by 60.0 MiB in the steps after the first: predicted peak 24.1 GiB of 24.0, ±1.0 %",
        ),
        (
            24 * GIB,
            "bad",
            "does not fit, short by 1.0 GiB in the steps after the first: predicted peak 25.0 GiB of 24.0",
        ),
    ],
)
def test_a_capacity_within_the_interval_may_not_do(peak: int, level: str, text: str) -> None:
    """GIVEN what is known before the first optimizer step, on a device of 24 GiB."""
    run = Run()
    before_its_optimizer(run, peak)
    view = build_view(run.session, CUDA, run.now_ns)
    assert (view.verdict.level, view.verdict.text) == (level, text)
    assert view.forecast[0].startswith(f"peak allocated {peak / GIB:.1f} GiB ±1.0 % predicted: ")


def test_a_lower_bound_has_no_interval() -> None:
    run = Run()
    run.adam(96 * MIB)
    run.frame(96 * MIB, phase="forward", boundary="forward_start")
    run.frame(150 * MIB, phase="forward", step_peak_bytes=150 * MIB)
    assert build_view(run.session, CUDA, run.now_ns).forecast[0].startswith("peak allocated ≥ 438.0 MiB predicted: ")


def test_a_recorded_step_has_its_own() -> None:
    run = Run()
    steady(run)
    for exact in (True, False):
        step = SteadyStep(run.now_ns, CUDA, 1, 10 * GIB, 11 * GIB, exact, "step 2 done again")
        run.session.apply_steady(step)
        line = build_view(run.session, CUDA, run.now_ns).forecast[-1]
        if exact:
            told = "reserved 11.0 GiB ±0.1 % predicted: step 2 done again · interval from the errors of a benchmark"
            assert line == f"peak allocated 10.0 GiB, {told}"
        else:
            assert line == "peak allocated ≥ 10.0 GiB, reserved ≥ 11.0 GiB predicted: step 2 done again"


def test_after_the_end_a_forecast_is_past() -> None:
    """What was still to come is not any more."""
    run = Run()
    steady(run)
    step = SteadyStep(run.now_ns, CUDA, 1, 10 * GIB, 11 * GIB, True, "step 2 done again", MIB, 30, GIB, 0)
    run.session.apply_steady(step)
    assert "would fail" in build_view(run.session, CUDA, run.now_ns).forecast[-1]

    run.session.ended(run.now_ns, 0)

    assert build_view(run.session, CUDA, run.now_ns).forecast == (
        "peak allocated 10.0 GiB was predicted: highest step so far (step 2)",
        "with 1.0 GiB outside the allocator the device needed 11.0 GiB of 24.0 GiB",
        "peak allocated 10.0 GiB, reserved 11.0 GiB ±0.1 % were predicted: step 2 done again"
        " · interval from the errors of a benchmark",
        "each step left 1.0 MiB more behind",
    )
