"""Peaks by phase: which figure is a phase's, and when it is exact; what the screen says of it."""

from __future__ import annotations

from typing import Any

import pytest

from memtui.analysis.build import build_view
from memtui.analysis.phasepeaks import besides_lines, phase_peaks_line
from memtui.analysis.policy import DEFAULT
from memtui.analysis.status import place_of
from memtui.session.phasepeaks import PhasePeak
from memtui.wire.frames import Device
from tests.support.sessions import GIB, SECOND, Run, classified

CUDA = "cuda:0"


def figures(run: Run) -> dict[str, tuple[float, bool]]:
    """GiB and exactness by phase."""
    return {phase: (peak.bytes_held / GIB, peak.exact) for phase, peak in run.session.phase_peaks(CUDA).items()}


class Loop(Run):
    """Frames with a phase that goes on, and a peak counter."""

    since = 0

    def at(
        self, phase: str, gib: float, peak: float, *, begins: bool = False, boundary: str = "", **fields: Any
    ) -> None:
        """A tick in `phase`, or the boundary that begins it."""
        if begins or boundary:
            self.since = self.now_ns + SECOND // 10
        self.frame(
            int(gib * GIB),
            phase=phase,
            phase_since_ns=self.since,
            boundary=boundary or None,
            allocated_peak_bytes=int(peak * GIB),
            step=self.step,
            **{"step_since_ns": self.step_since_ns, **fields},
        )

    def first_step(self) -> None:
        """Rises to 3 in the forward and to 10 in the backward pass."""
        self.at("startup", 1, 1, begins=True)
        self.at("forward", 1, 1, boundary="forward_start")
        self.at("forward", 2, 2.5)
        self.at("backward", 3, 3, boundary="backward_start")
        self.at("backward", 8, 10)
        self.at("optimizer", 2, 10, boundary="optimizer_start")
        self.step += 1
        self.step_since_ns = self.now_ns + SECOND // 10
        self.at(
            "between",
            4,
            10,
            boundary="optimizer_end",
            last_step_peak_bytes=10 * GIB,
            last_step_peak_exact=True,
            last_step_peak_phase="backward",
        )


def test_what_the_counter_rose_to_in_one_phase_is_its_peak() -> None:
    """Exact where the counter rose; what was only found allocated, at ticks and on both sides of boundaries, is not."""
    run = Loop()
    run.first_step()
    assert figures(run) == {
        "startup": (1, False),
        "forward": (3, False),  # it may have come back in the next step by now
        "backward": (10, True),
        "optimizer": (4, False),
        "between": (4, False),
    }
    assert run.session.phase_peaks(CUDA)["backward"] == PhasePeak(10 * GIB, True, 0, 5 * SECOND // 10)


def test_a_peak_is_exact_as_long_as_nothing_higher_can_have_gone_unseen() -> None:
    run = Loop()
    run.at("forward", 1, 1, boundary="forward_start")
    run.at("backward", 3, 3, boundary="backward_start")
    assert figures(run)["forward"] == (3, True)
    run.at("backward", 8, 10)
    assert figures(run)["forward"] == (3, True)  # over, and the step is the same
    run.at("forward", 2, 10, boundary="forward_start")  # the next micro-batch
    assert figures(run)["forward"] == (3, False)
    run.at("forward", 4, 10)
    assert figures(run)["forward"] == (4, False)


def test_a_rise_over_several_phases_is_of_none() -> None:
    """GIVEN frames that were lost, or steps between that were not read THEN the rise says nothing of a phase."""
    run = Loop()
    run.at("forward", 1, 1, boundary="forward_start")
    run.sequence += 1  # lost
    run.at("backward", 2, 9, boundary="backward_start")
    assert figures(run) == {"forward": (1, False), "backward": (2, False)}
    run = Loop()
    run.at("between", 1, 1, begins=True)
    run.step = 7
    run.at("forward", 1, 9, boundary="forward_start")
    assert figures(run) == {"between": (1, False), "forward": (1, False)}
    run = Loop()
    run.at("forward", 1, 1, begins=True)
    run.at("forward", 1, 9, begins=True)  # another forward, since when?
    assert figures(run) == {"forward": (1, False)}


def test_the_agent_knows_the_phase_of_a_steps_peak() -> None:
    """Also where no frame fell into that phase; of a later step, it is exact where it is the highest."""
    run = Loop()
    run.at("between", 1, 12, begins=True)
    run.end_step(GIB, 9 * GIB, exact=False, phase="backward", allocated_peak_bytes=12 * GIB)
    assert figures(run)["backward"] == (9, False)
    run.end_step(GIB, 13 * GIB, exact=True, phase="optimizer", allocated_peak_bytes=13 * GIB)
    assert figures(run)["optimizer"] == (13, True)
    assert run.session.phase_peaks(CUDA)["optimizer"].step == 1


def test_after_a_reset_of_the_counter_nothing_is_exact() -> None:
    run = Loop()
    run.first_step()
    run.at("between", 4, 4)
    assert figures(run)["backward"] == (10, False)
    run.at("forward", 4, 4, boundary="forward_start")
    run.at("forward", 9, 11)
    assert figures(run)["forward"] == (11, False)


def test_what_the_stack_showed_has_its_own_peak() -> None:
    """What a boundary finds after it may have come later."""
    run = Loop()
    run.at("between", 1, 1, begins=True)
    run.at("checkpoint", 2, 2, begins=True)
    run.at("checkpoint", 3, 5)
    run.at("forward", 4, 6, boundary="forward_start")
    assert figures(run)["checkpoint"] == (5, True)  # over, and in the same step
    assert figures(run)["forward"] == (4, False)
    assert figures(run)["between"] == (1, False)


def test_the_hosts_peak_is_never_exact() -> None:
    run = Loop(Device("host", "host", "", "mallinfo2"))
    for allocated in (1, 2, 3):
        run.frame(
            allocated * GIB, device="host", phase="forward", phase_since_ns=0, allocated_peak_bytes=allocated * GIB
        )
    assert run.session.phase_peaks("host")["forward"] == PhasePeak(3 * GIB, False, 0, 3 * SECOND // 10)


def test_a_copy_goes_on_alone() -> None:
    run = Loop()
    run.first_step()
    twin = run.session.snapshot()
    run.at("evaluation", 20, 20, boundary="evaluation_start")
    assert "evaluation" in run.session.phase_peaks(CUDA)
    assert "evaluation" not in twin.phase_peaks(CUDA)


def test_the_line() -> None:
    run = Loop()
    assert phase_peaks_line(run.session, CUDA) == ""
    run.first_step()
    assert phase_peaks_line(run.session, CUDA) == (
        "GiB: forward ≥ 3.0 · backward 10.0 · optimizer ≥ 4.0 · evaluation – · checkpoint –"
    )
    run.at("compilation", 5, 10, begins=True)
    run.at("between", 60, 60, begins=True)
    run.at("between", 61, 61)
    assert phase_peaks_line(run.session, CUDA) == (
        "GiB: forward ≥ 3.0 · backward ≥ 10.0 · optimizer ≥ 4.0 · between 61.0 · evaluation – · checkpoint –"
        " · compilation ≥ 5.0"
    )
    view = build_view(run.session, CUDA, run.now_ns)
    assert view.phase_peaks == phase_peaks_line(run.session, CUDA)
    assert view.phases_seen == ("startup", "compilation")


def trained(run: Run, steps: int, peak: int = 10 * GIB) -> None:
    """Whole steps with state in memory."""
    run.adam(GIB, state=2 * GIB, steps=1)
    run.frame(4 * GIB, phase="forward", boundary="forward_start")
    for _ in range(steps):
        run.end_step(4 * GIB, peak)


def test_passes_that_were_never_seen_are_in_no_forecast() -> None:
    """Said once 20 steps are over, in one line; GIVEN an agent that came late, with the step it came at."""
    run = Run()
    trained(run, 19)
    assert besides_lines(run.session, CUDA, DEFAULT) == ()
    run.end_step(4 * GIB, 10 * GIB)
    unseen = "no evaluation or checkpoint seen yet: their peaks are not in this"
    assert build_view(run.session, CUDA, run.now_ns).forecast[-1] == unseen
    run.frame(3 * GIB, phase="evaluation", boundary="evaluation_start")
    assert besides_lines(run.session, CUDA, DEFAULT) == (
        "evaluation: peak ≥ 3.0 GiB (step 21)",
        "no checkpoint seen yet: its peak is not in this",
    )
    late = Run()
    late.step = 900
    late.frame(4 * GIB)
    trained(late, 20)
    assert besides_lines(late.session, CUDA, DEFAULT) == (
        "no evaluation or checkpoint seen since step 901: their peaks are not in this",
    )
    late.session.ended(late.now_ns, 0)
    assert besides_lines(late.session, CUDA, DEFAULT) == ()


def test_an_evaluation_that_was_higher_than_every_step_is_the_forecast() -> None:
    """Also after the program has set its counters back."""
    run = Run()
    trained(run, 3)
    run.frame(5 * GIB, phase="evaluation", phase_since_ns=0, allocated_peak_bytes=10 * GIB)
    run.frame(5 * GIB, phase="evaluation", phase_since_ns=0, allocated_peak_bytes=14 * GIB)
    for _ in range(3):
        run.end_step(4 * GIB, 10 * GIB, allocated_peak_bytes=10 * GIB)

    line = build_view(run.session, CUDA, run.now_ns).forecast[0]

    assert line == "peak allocated ≥ 14.0 GiB predicted: evaluation, step 4"


def test_an_evaluation_before_the_first_step_comes_again_on_top_of_the_state() -> None:
    """GIVEN what will hold the state is known, and then what does hold it."""
    run = Run()
    run.adam(2 * GIB)
    run.frame(3 * GIB, phase="evaluation", phase_since_ns=0, allocated_peak_bytes=3 * GIB)
    run.frame(3 * GIB, phase="evaluation", phase_since_ns=0, allocated_peak_bytes=14 * GIB)
    run.frame(2 * GIB, phase="forward", boundary="forward_start", allocated_peak_bytes=14 * GIB)
    peaks = {"step_peak_bytes": 6 * GIB, "allocated_peak_bytes": 14 * GIB}
    run.frame(4 * GIB, phase="backward", boundary="backward_end", **peaks)
    assert build_view(run.session, CUDA, run.now_ns).forecast[0].startswith("peak allocated 18.0 GiB predicted: evalu")

    run.end_step(8 * GIB, 9 * GIB, classification=classified(8 * GIB, optimizer_state=4 * GIB))
    run.adam(2 * GIB, state=4 * GIB, steps=1)
    for _ in range(2):
        run.end_step(6 * GIB, 10 * GIB, allocated_peak_bytes=14 * GIB)
    assert build_view(run.session, CUDA, run.now_ns).forecast[0].startswith("peak allocated 18.0 GiB predicted: ev")


def test_a_checkpoint_that_was_loaded_does_not_come_again() -> None:
    run = Run()
    run.frame(20 * GIB, phase="checkpoint", phase_since_ns=0)
    trained(run, 3)
    line = build_view(run.session, CUDA, run.now_ns).forecast[0]
    assert line == "peak allocated 10.0 GiB predicted: highest step so far (step 2)"


@pytest.mark.parametrize(
    ("phase", "step", "place"),
    [
        ("startup", 0, "startup"),
        ("forward", 0, "step 1 (warm-up) · forward"),
        ("evaluation", 3, "step 4 · evaluation"),
    ],
)
def test_the_first_step_is_said_to_be_one(phase: str, step: int, place: str) -> None:
    run = Run()
    run.frame(GIB, phase=phase, step=step)
    assert place_of(run.session) == place


def test_a_first_step_with_optimizer_state_is_none() -> None:
    """The agent came when the training had begun."""
    run = Run()
    run.adam(GIB, state=2 * GIB, steps=100)
    run.frame(GIB, phase="forward")
    assert place_of(run.session) == "step 1 · forward"


def test_a_boundary_that_was_told_late() -> None:
    """GIVEN a boundary older than the frame before it THEN that frame is compared with the next one."""
    run = Loop()
    run.at("forward", 1, 1, boundary="forward_start")
    run.at("backward", 5, 5, begins=True)
    late = run.now_ns - SECOND // 20
    run.at("backward", 3, 3, boundary="backward_start", time_ns=late)
    run.since = late
    run.at("backward", 6, 7)
    assert figures(run) == {"forward": (1, False), "backward": (7, True)}
