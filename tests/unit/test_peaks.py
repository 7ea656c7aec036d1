"""A step's peak from the lifetime counter: exact where it rose, else a lower bound and said so."""

from __future__ import annotations

from memtui.agent.peaks import NO_STEP, StepPeaks, TakenPeaks


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


def test_what_is_taken_is_the_steps_peak() -> None:
    """The counter begins afresh with each step; what the program reset in mid-step counts too."""
    peaks = TakenPeaks(whole=True)
    peaks.sample(100, 300, "forward", working=True)
    assert (peaks.current_bytes, peaks.exact, peaks.phase) == (300, True, "forward")
    peaks.carry(700)
    peaks.sample(100, 200, "backward", working=True)
    assert (peaks.current_bytes, peaks.phase) == (700, None)
    peaks.carry(250)
    peaks.close(1)
    assert (peaks.last_bytes, peaks.last_exact, peaks.last_phase) == (700, True, None)
    peaks.sample(100, 400, "backward", working=True)
    peaks.carry(400)
    peaks.close(2)
    assert (peaks.last_bytes, peaks.last_phase) == (400, "backward")
    assert peaks.highest() == (700, 1, None)
    assert peaks.highest() == NO_STEP


def test_a_counter_that_is_older_than_the_step_is_not_its_peak() -> None:
    """Taking began in the middle of a run: that step has a lower bound, the next one its peak."""
    peaks = TakenPeaks(whole=False)
    peaks.sample(100, 900, "forward", working=True)
    peaks.carry(900)
    assert (peaks.current_bytes, peaks.exact) == (100, False)
    peaks.close(1)
    assert (peaks.last_bytes, peaks.last_exact, peaks.highest()) == (100, False, NO_STEP)
    peaks.carry(300)
    peaks.close(2)
    assert (peaks.last_bytes, peaks.last_exact, peaks.highest()) == (300, True, (300, 2, None))


def test_what_is_counted_before_a_step_is_read_is_not_its_own() -> None:
    """The steps between two that are read, and all that was before the agent came: a lower bound, until more is."""
    peaks = StepPeaks()
    peaks.sample(100, 700, "backward", working=True, step=0)
    peaks.end_step(100)
    peaks.sample(300, 900, "forward", working=True, step=3)  # reached in one of three
    assert (peaks.current_bytes, peaks.exact) == (300, False)
    peaks.sample(100, 900, "backward", working=True, step=3)
    peaks.end_step(100)
    assert (peaks.last_bytes, peaks.last_step) == (700, 1)  # the fourth is not known
    peaks.sample(200, 1000, "forward", working=True, step=4)
    peaks.end_step(100)
    assert (peaks.last_bytes, peaks.last_exact, peaks.last_step) == (1000, True, 5)

    late = StepPeaks(late=True)
    late.sample(100, 5000, "forward", working=True, step=0)
    assert (late.current_bytes, late.exact) == (100, False)
    late.sample(100, 6000, "backward", working=True, step=0)
    assert (late.current_bytes, late.exact) == (6000, True)
