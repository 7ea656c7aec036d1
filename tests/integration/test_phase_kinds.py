"""Loops of every kind under the agent: their steps are counted right, and their phases told apart."""

from __future__ import annotations

import pathlib
import subprocess
from typing import NamedTuple

import pytest

from memtui.session.session import Session
from memtui.wire.frames import PHASES, Event, Frame, Hello
from tests.support import programs

TRAINED = {"forward", "backward", "optimizer"}
EVALUATED = TRAINED | {"evaluation"}


class Kind(NamedTuple):
    """What is seen of a kind of loop: phases that must be, and that must not be; steps beyond the true ones."""

    seen: set[str]
    unseen: set[str]
    extra: int = 0  # a cycle of optimizers is learned in its first round


NONE_ASIDE = {"evaluation", "checkpoint", "compilation"}
KINDS = {
    "plain": Kind(TRAINED, NONE_ASIDE),
    "accumulated": Kind(EVALUATED, {"checkpoint", "compilation"}),
    "held": Kind(TRAINED, NONE_ASIDE),
    "two_optimizers": Kind(TRAINED, NONE_ASIDE, 1),
    "gan": Kind(EVALUATED, {"checkpoint", "compilation"}, 3),
    "scaled": Kind(TRAINED, NONE_ASIDE),
    "checkpointed": Kind(TRAINED, NONE_ASIDE),
    "compiled": Kind(TRAINED | {"compilation"}, {"evaluation", "checkpoint"}),
    "optimizer_in_backward": Kind({"forward", "backward"}, NONE_ASIDE),
    "closure": Kind(TRAINED, NONE_ASIDE),
    "inference": Kind({"forward"}, set(PHASES) - {"startup", "forward"}),
    "evaluated": Kind(EVALUATED, {"checkpoint", "compilation"}),
    "several_evaluated": Kind(EVALUATED, {"checkpoint", "compilation"}),
    "averaged": Kind(EVALUATED, {"checkpoint", "compilation"}),
    "saved": Kind(TRAINED | {"checkpoint"}, {"evaluation", "compilation"}),
}


def watch(kind: str, environment: dict[str, str], runtime: pathlib.Path) -> tuple[list[Frame], dict[str, int], Session]:
    """All frames of a run, what it printed, and a session that was fed with all of it."""
    session = Session()
    frames = []
    arguments = (str(programs.PROGRAMS / "kinds.py"), kind)
    with (
        programs.started(*arguments, environment=environment, stdout=subprocess.PIPE) as process,
        programs.AgentConnection(runtime, process.pid) as viewer,
    ):
        for message in viewer.messages():
            session.apply(message, 0) if isinstance(message, (Frame, Hello, Event)) else None
            if isinstance(message, Frame):
                frames.append(message)
        assert process.stdout is not None
        printed = dict(line.split() for line in process.stdout.read().decode().splitlines())
        assert process.wait() == 0
    return frames, {name: int(value) for name, value in printed.items()}, session


@pytest.mark.parametrize("name", KINDS)
def test_kind(name: str, tmp_path: pathlib.Path) -> None:
    kind = KINDS[name]
    frames, printed, _ = watch(name, programs.host_environment(tmp_path), tmp_path)
    steps = printed["steps"]
    assert steps <= frames[-1].step <= steps + kind.extra
    seen = {frame.phase for frame in frames}
    assert kind.seen <= seen
    assert not kind.unseen & seen


def test_a_root_run_again_in_backward_is_no_evaluation(tmp_path: pathlib.Path) -> None:
    """From the first backward pass on, that is: it shows what the forward before it was."""
    frames, printed, _ = watch("checkpointed_reentrant", programs.host_environment(tmp_path), tmp_path)
    assert frames[-1].step == printed["steps"]
    later = {frame.phase for frame in frames}
    assert {"forward", "backward"} <= later
    assert "evaluation" not in later


def test_what_the_stack_shows_lasts_from_when_it_was_seen(tmp_path: pathlib.Path) -> None:
    """Several looks at one long saving have one beginning; what comes after it begins after the last of them."""
    frames, _, session = watch("saved", programs.host_environment(tmp_path), tmp_path)
    shown = [frame for frame in frames if frame.boundary is None]
    beginnings: dict[int, list[Frame]] = {}
    for frame in shown:
        if frame.phase == "checkpoint":
            beginnings.setdefault(frame.phase_since_ns, []).append(frame)
    assert max(len(seen) for seen in beginnings.values()) >= 2
    for before, after in zip(shown, shown[1:]):
        if before.phase == "checkpoint" != after.phase:
            assert after.phase_since_ns > before.time_ns
    for seen in beginnings.values():
        just_before = max(seen[-1].phase_since_ns, seen[-1].time_ns - 1_000_000)
        assert session.phases.at(just_before) in ("checkpoint", "between")
        assert session.phases.at(seen[-1].time_ns) == "checkpoint"


@pytest.mark.virtual_gpu
def test_optimizers_that_step_in_hooks_of_a_device(tmp_path: pathlib.Path) -> None:
    """GIVEN gradients on a GPU, whose hooks run on a thread of autograd's, THEN steps are counted as on the host."""
    environment = programs.virtual_environment_with_agent(tmp_path, memory="4GiB")
    frames, printed, _ = watch("optimizer_in_backward", environment, tmp_path)
    assert frames[-1].step == printed["steps"]
    assert "optimizer" not in {frame.phase for frame in frames}


@pytest.mark.virtual_gpu
def test_peaks_by_phase_are_the_allocators(tmp_path: pathlib.Path) -> None:
    """The highest of them is torch's own peak, exact, and no other is above it."""
    environment = programs.virtual_environment_with_agent(tmp_path, memory="4GiB")
    frames, printed, session = watch("evaluated", environment, tmp_path)
    assert frames[-1].step == printed["steps"]
    peaks = session.phase_peaks("cuda:0")
    assert set(peaks) >= EVALUATED
    highest = max(peaks.values(), key=lambda peak: peak.bytes_held)
    assert highest.bytes_held == printed["peak"]
    assert highest.exact
    assert not peaks["evaluation"].exact
    assert "checkpoint" not in peaks


@pytest.mark.virtual_gpu
@pytest.mark.parametrize("kind", ["validated", "validated_long", "validated_last"])
def test_a_peak_of_the_first_evaluation_call_is_evaluations(kind: str, tmp_path: pathlib.Path) -> None:
    """Between quick steps of which few are read: the event, the step's peak, and the phase's say so."""
    environment = programs.virtual_environment_with_agent(tmp_path, memory="4GiB")
    frames, printed, session = watch(kind, environment, tmp_path)
    assert frames[-1].step == printed["steps"]

    newest = [event for event in session.events if event.name == "new_peak"][-1]
    assert newest.figures["allocated_peak_bytes"] == printed["peak"]
    assert newest.phase == "evaluation"
    peak = session.phase_peaks("cuda:0")["evaluation"]
    assert (peak.bytes_held, peak.exact) == (printed["peak"], True)
    if kind != "validated_last":
        highest = session.steps.highest("cuda:0")
        assert highest is not None
        assert (highest.bytes_held, highest.phase, highest.exact) == (printed["peak"], "evaluation", True)
        assert highest.step == printed["steps"] - 12
