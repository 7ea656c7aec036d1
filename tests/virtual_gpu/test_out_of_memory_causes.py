"""Programs that really run out of memory, each in its own way: the cause that is named, and evidence to the byte."""

from __future__ import annotations

import json
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from memtui.analysis.oom.live import live_evidence
from memtui.analysis.oom.story import build_story
from memtui.session.session import Session
from memtui.wire.frames import Event
from tests.support import programs
from tests.support.exhausted import PROGRAM, environment_of, errors, same_figures, watched

pytestmark = pytest.mark.virtual_gpu

MIB = 1 << 20
#: Causes that one process runs into, one after the other, and what each is called.
GROUPS = (
    {
        "batch": "longest batch",
        "impossible": "impossible",
        "full": "full",
        "fragmentation": "fragmentation",
        "pool": "fragmentation",
        "cap": "cap",
        "other": "other process",
    },
    {
        "optimizer": "first optimizer step",
        "weights": "full",
        "gradients": "full",
        "state": "full",
        "activations": "full",
        "evaluation": "evaluation peak",
        "checkpoint": "checkpoint peak",
    },
    {"leak": "leak"},
    {"late_leak": "leak"},
    {"with_gradients": "evaluation peak"},
)


@pytest.mark.parametrize("causes", GROUPS, ids=lambda causes: next(iter(causes)))
def test_each_cause_is_named_and_its_figures_are_torchs(tmp_path: pathlib.Path, causes: dict[str, str]) -> None:
    """GIVEN errors that the program catches, THEN each one's cause, and the figures that torch itself has."""
    done, log = watched(tmp_path, "--later", *causes)
    assert done.returncode == 0, done.stderr
    told = dict(map(json.loads, done.stdout.splitlines()))
    found = errors(log)
    assert list(told) == list(causes)
    assert len(found) == len(causes)
    for (name, kind), (event, session) in zip(causes.items(), found):
        story = build_story(session, event)
        assert (story.answer.cause.kind, story.answer.cause.certain) == (kind, True), (name, story.answer.sentence)
        assert story.raised.startswith("raised at failing.py:")
        assert f"memtui:   {kind}: " in done.stderr
        same_figures(event, session, told[name])
        check = EVIDENCE.get(name)
        if check is not None:
            check(event, session)


def _pins(event: Event, session: Session) -> None:
    assert event.failure is not None
    pinned = event.failure.pinned
    large = [each for each in pinned if each.segment_bytes > 20 * MIB]
    assert [(each.segment_bytes, each.free_bytes, each.num_live, each.block_bytes) for each in large] == [
        (600 * MIB, 250 * MIB, 1, 350 * MIB),
        (600 * MIB, 250 * MIB, 1, 350 * MIB),
        (400 * MIB, 10 * MIB, 1, 390 * MIB),
    ]
    text = build_story(session, event)
    where = f"segment {pinned[0].address:#x}: 250.0 MiB of 600.0 MiB free"
    assert text.pins[0] == f"{where}, pinned by a block of 350.0 MiB at {pinned[0].block_address:#x}"
    assert event.failure.blocks is not None
    assert f"{event.failure.blocks.num_pinned_segments} segments are pinned" in text.answer.sentence


def _pool(event: Event, session: Session) -> None:
    evidence = live_evidence(session, event)
    assert evidence.private is not None
    assert evidence.private.low == 1200 * MIB
    assert "pools of CUDA graphs" in build_story(session, event).answer.sentence


def _cap(event: Event, session: Session) -> None:
    assert event.figures["allowed_bytes"] == 512 * MIB
    assert event.figures["device_total_bytes"] == 2048 * MIB


def _other(event: Event, session: Session) -> None:
    evidence = live_evidence(session, event)
    assert evidence.others is not None
    assert evidence.own is not None
    assert (evidence.others.low, evidence.own.low) == (1400 * MIB, 100 * MIB + event.figures["reserved_bytes"])


def _held(category: str, size_bytes: int) -> Callable[[Event, Session], None]:
    def check(event: Event, session: Session) -> None:
        assert event.failure is not None
        assert event.failure.classification is not None
        assert event.failure.classification.categories[category] == size_bytes

    return check


def _activations(event: Event, session: Session) -> None:
    """What was saved, the inputs of four layers, and the workspace of cuBLAS, which no step has outlived yet."""
    assert event.failure is not None
    assert event.failure.classification is not None
    held = event.failure.classification.categories["activations"]
    assert 1500 * MIB + 4 * 64 * 512 * 4 <= held < 1516 * MIB
    assert build_story(session, event).answer.remedies[1].saves_bytes == held


def _evaluation(event: Event, session: Session) -> None:
    """It keeps no activations already: a smaller batch comes first, of what it asked for."""
    assert event.phase == "evaluation"
    first = build_story(session, event).answer.remedies[0]
    assert first.action.startswith("half the evaluation batch")
    assert first.saves_bytes == 1940 * MIB // 2


def _with_gradients(event: Event, session: Session) -> None:
    """What has no known owner may be activations: no figure of them is a bound."""
    assert event.phase == "forward"
    answer = build_story(session, event).answer
    assert "in eval mode, but gradients are on" in answer.sentence
    assert answer.remedies[0].action.startswith("evaluate under torch.no_grad()")
    assert answer.remedies[0].saves_bytes is None or answer.remedies[0].saves_bytes > 1000 * MIB


def _checkpoint(event: Event, session: Session) -> None:
    assert event.phase == "checkpoint"
    assert [each.saves_bytes for each in build_story(session, event).answer.remedies[:2]] == [700 * MIB] * 2


def _first_step(event: Event, session: Session) -> None:
    """Of Adam's state of 1 GiB six of eight tensors were made: no more than that is said to have been."""
    assert event.failure is not None
    assert event.failure.undecided_bytes >= 6 * 128 * MIB
    assert live_evidence(session, event).live.state_to_come_bytes == 2 * _HALF - event.failure.undecided_bytes


def _leak(event: Event, session: Session) -> None:
    rate = live_evidence(session, event).live.growth_bytes_per_step
    assert rate is not None
    assert abs(rate - 4 * MIB) < 4 * MIB / 50


def _late_leak(event: Event, session: Session) -> None:
    """Steps before the first that left something are none of it; what is told to have grown has."""
    live = live_evidence(session, event).live
    assert live.growth_since_step is not None
    assert live.grown_bytes is not None
    assert 90 <= live.growth_since_step <= 200
    assert live.grown_bytes <= 4 * MIB * (event.step - 100 + 8)


#: Four layers of 8192 in half precision.
_HALF = 4 * 2 * (8192 * 8192 + 8192)
EVIDENCE: dict[str, Callable[[Event, Session], None]] = {
    "fragmentation": _pins,
    "pool": _pool,
    "cap": _cap,
    "other": _other,
    "optimizer": _first_step,
    "weights": _held("parameters", _HALF * 6 // 4),
    "gradients": _held("gradients", _HALF),
    "state": _held("optimizer_state", 2 * 4 * 4 * (4096 * 4096 + 4096)),
    "activations": _activations,
    "evaluation": _evaluation,
    "checkpoint": _checkpoint,
    "leak": _leak,
    "late_leak": _late_leak,
    "with_gradients": _with_gradients,
}


def test_what_is_killed_right_after_leaves_its_last_figures_with_a_viewer(tmp_path: pathlib.Path) -> None:
    """GIVEN a program that SIGKILL ends right after the error, as the system's killer does, THEN the log has all."""
    done, log = watched(tmp_path, "--later", "--killed", "fragmentation")
    assert done.returncode == -signal.SIGKILL
    [(event, session)] = errors(log)
    same_figures(event, session, json.loads(done.stdout.splitlines()[-1])[1])
    _pins(event, session)
    assert "memtui:   fragmentation: " in done.stderr


def test_of_a_storm_of_errors_the_number_is_torchs(tmp_path: pathlib.Path) -> None:
    """GIVEN more errors at once than are told one by one, THEN their number is still right."""
    done, log = watched(tmp_path, "--later", "storm")
    assert done.returncode == 0, done.stderr
    assert len(errors(log)) <= 2000
    assert ", 2,000 times so far, raised at failing.py:" in done.stderr
    parts = re.findall(r"out of memory ([\d,]+) times.*, and again right after", done.stderr)
    told = len(re.findall(r"out of memory on cuda:0", done.stderr))
    assert sum(int(part.replace(",", "")) for part in parts) + told <= 2000


@pytest.mark.parametrize("causes", GROUPS, ids=lambda causes: next(iter(causes)))
def test_after_attaching(tmp_path: pathlib.Path, causes: dict[str, str]) -> None:
    """GIVEN a program that was started without the agent, THEN the same is told once it is in."""
    environment, log = environment_of(tmp_path), tmp_path / "attached.log"
    with programs.started(
        PROGRAM, "--wait", *causes, environment=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        command = [sys.executable, "-m", "memtui", "attach", "--headless", "--pid", str(process.pid), "--log", str(log)]
        viewer = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert viewer.stdout is not None
            until(viewer, "allocated")
            process.stdin.write(b"go\n")
            process.stdin.flush()
            said = [json.loads(process.stdout.readline())[1] for _ in causes]
            assert process.wait(100) == 0
            printed = viewer.communicate(timeout=100)[0]
        finally:
            viewer.kill()
            viewer.wait()
    found = errors(log)
    assert len(found) == len(causes)
    for (name, kind), (event, session), figures in zip(causes.items(), found, said):
        story = build_story(session, event)
        assert story.answer.cause.kind == kind, (name, story.answer.sentence)
        assert f"memtui:   {kind}: " in printed
        same_figures(event, session, figures)
        check = EVIDENCE.get(name)
        if check is not None:
            check(event, session)


def test_what_is_killed_before_a_viewer_comes_is_told_from_its_file(tmp_path: pathlib.Path) -> None:
    """GIVEN an error in a program's first moments, THEN its lines are there all the same."""
    done, _ = watched(tmp_path, "--killed", "fragmentation")
    assert done.returncode == -signal.SIGKILL
    assert "memtui:   fragmentation: " in done.stderr


def until(viewer: subprocess.Popen[str], text: str) -> None:
    """Reads lines until one has `text`."""
    assert viewer.stdout is not None
    for line in viewer.stdout:
        if text in line:
            return
    raise AssertionError("the viewer has ended")


def test_while_a_step_is_recorded_the_call_sites_of_live_memory_are_kept(tmp_path: pathlib.Path) -> None:
    """GIVEN an error in a step that is being recorded, THEN who allocated what is live then, to the byte."""
    done, log = watched(tmp_path, "--later", "recorded")
    assert done.returncode == 0, done.stderr
    [(event, session)] = errors(log)
    same_figures(event, session, json.loads(done.stdout.splitlines()[-1])[1])
    assert event.failure is not None
    largest = event.failure.sites[0]
    assert (largest.size_bytes, largest.num_blocks) == (1800 * MIB, 3)
    assert largest.text.startswith(PROGRAM)
    story = build_story(session, event)
    assert story.sites[0].startswith("1.8 GiB in 3  failing.py:")
    assert story.sites[0].endswith(" recorded")
    assert "of this step" in story.sites_note
