"""A step's peak from the lifetime counter: exact where it rose, else a lower bound and said so."""

from __future__ import annotations

from memtui.agent.peaks import StepPeaks


def test_a_rise_within_the_step_is_its_peak() -> None:
    peaks = StepPeaks()
    peaks.sample(100, 100, "startup", working=False)
    peaks.end_step(100)
    peaks.sample(150, 400, "forward", working=True)
    peaks.sample(120, 700, "backward", working=True)
    assert (peaks.current_bytes, peaks.exact) == (700, True)
    peaks.end_step(110)
    assert (peaks.last_bytes, peaks.last_exact, peaks.last_phase) == (700, True, "backward")


def test_below_an_earlier_peak_only_what_was_seen_is_known() -> None:
    peaks = StepPeaks()
    peaks.sample(100, 700, "backward", working=True)
    peaks.end_step(100)
    peaks.sample(300, 700, "forward", working=True)
    peaks.sample(250, 700, "backward", working=True)
    assert (peaks.current_bytes, peaks.exact) == (300, False)
    peaks.end_step(90)
    assert (peaks.last_bytes, peaks.last_exact, peaks.last_phase) == (300, False, "forward")
    assert peaks.current_bytes == 90


def test_a_reset_between_steps_makes_the_next_step_exact() -> None:
    peaks = StepPeaks()
    peaks.sample(100, 700, "backward", working=True)
    peaks.end_step(100)
    peaks.sample(100, 100, "between", working=False)
    peaks.sample(120, 500, "backward", working=True)
    assert (peaks.current_bytes, peaks.exact) == (500, True)


def test_a_reset_in_mid_step_leaves_a_lower_bound() -> None:
    peaks = StepPeaks()
    peaks.sample(600, 700, "forward", working=True)
    peaks.sample(100, 120, "backward", working=True)
    assert (peaks.current_bytes, peaks.exact) == (600, False)


def test_a_rise_over_several_phases_is_of_none() -> None:
    peaks = StepPeaks()
    peaks.sample(100, 500, None, working=True)
    peaks.end_step(100)
    assert peaks.last_phase is None


def test_without_a_counter_the_largest_seen_is_a_lower_bound() -> None:
    peaks = StepPeaks()
    peaks.sample(100, None, "forward", working=True)
    peaks.sample(300, None, "backward", working=True)
    assert (peaks.current_bytes, peaks.exact, peaks.phase) == (300, False, "backward")
