"""Programs that really run out of memory, each in its own way: the cause that is named, and evidence to the byte."""

from __future__ import annotations

import io
import json
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from memtui.analysis.oom.live import live_evidence
from memtui.analysis.oom.parse import find_messages
from memtui.analysis.oom.story import build_story
from memtui.session.session import Session
from memtui.sources.log_reader import LogReader
from memtui.wire.frames import Event
from tests.support import programs
from tests.support.virtual_gpu import virtual_environment

pytestmark = pytest.mark.virtual_gpu

MIB = 1 << 20
PROGRAM = str(programs.PROGRAMS / "failing.py")
_ROOT = programs.PROGRAMS.parents[1]
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
)


def environment_of(folder: pathlib.Path) -> dict[str, str]:
    folder.chmod(0o700)
    own = {"PYTHONPATH": str(_ROOT), "MEMTUI_RUNTIME_DIR": str(folder), "TMPDIR": str(folder)}
    return programs.plain_environment() | virtual_environment(memory="2GiB", context="100MiB") | own


def watched(folder: pathlib.Path, *causes: str) -> tuple[subprocess.CompletedProcess[str], pathlib.Path]:
    """The program under `memtui run`, and the log."""
    log = folder / "run.log"
    command = [sys.executable, "-m", "memtui", "run", "--headless", "--log", str(log), "--"]
    done = subprocess.run(
        [*command, sys.executable, PROGRAM, *causes],
        env=environment_of(folder),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    return done, log


def errors(log: pathlib.Path) -> list[tuple[Event, Session]]:
    """Each error, with what was known when it came."""
    reader = LogReader(str(log))
    try:
        found = [event for event in reader.whole.events if event.name == "oom"]
        return [(event, reader.session_at(event.time_ns)) for event in found]
    finally:
        reader.close()


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


def same_figures(event: Event, session: Session, said: dict[str, Any]) -> None:
    """What torch prints and counts is what was noted, and categories and blocks are of that instant."""
    evidence = live_evidence(session, event)
    [found] = find_messages(io.BytesIO(said["message"].encode()))
    for name, ours in (
        ("tried", evidence.tried),
        ("total", evidence.total),
        ("free", evidence.free),
        ("allocated", evidence.allocated),
        ("unallocated", evidence.idle),
        ("private", evidence.private),
        ("allowed", evidence.allowed),
    ):
        printed = found.message.interval(name)
        if printed is not None:
            assert ours is not None, name
            assert printed.low <= ours.low == ours.high <= printed.high, name
    assert evidence.free is not None
    assert evidence.free.low == said["free"]
    assert event.figures["reserved_bytes"] == said["reserved"]
    assert event.failure is not None
    classification, blocks = event.failure.classification, event.failure.blocks
    assert classification is not None
    assert blocks is not None
    assert sum(classification.categories.values()) == event.figures["allocated_bytes"]
    free = blocks.inactive_split_bytes + blocks.reusable_cache_bytes + blocks.private_pool_idle_bytes
    assert event.figures["allocated_bytes"] + free == event.figures["reserved_bytes"]


def _pins(event: Event, session: Session) -> None:
    assert event.failure is not None
    pinned = event.failure.pinned
    assert [(each.segment_bytes, each.free_bytes, each.num_live, each.block_bytes) for each in pinned] == [
        (600 * MIB, 250 * MIB, 1, 350 * MIB),
        (600 * MIB, 250 * MIB, 1, 350 * MIB),
        (400 * MIB, 10 * MIB, 1, 390 * MIB),
    ]
    text = build_story(session, event)
    assert text.pins[0].startswith(f"segment {pinned[0].address:#x} of 600.0 MiB: 250.0 MiB free, pinned by 1 live")
    assert "3 segments are pinned" in text.answer.sentence


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
    assert (evidence.others.low, evidence.own.low) == (1400 * MIB, 200 * MIB)


def _held(category: str, size_bytes: int) -> Callable[[Event, Session], None]:
    def check(event: Event, session: Session) -> None:
        assert event.failure is not None
        assert event.failure.classification is not None
        assert event.failure.classification.categories[category] == size_bytes

    return check


def _first_step(event: Event, session: Session) -> None:
    """Of Adam's state of 1 GiB six of eight tensors were made: no more than that is said to have been."""
    assert event.failure is not None
    assert event.failure.undecided_bytes >= 6 * 128 * MIB
    assert live_evidence(session, event).live.state_to_come_bytes == 2 * _HALF - event.failure.undecided_bytes


def _leak(event: Event, session: Session) -> None:
    rate = live_evidence(session, event).live.growth_bytes_per_step
    assert rate is not None
    assert abs(rate - 4 * MIB) < 4 * MIB / 50


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
    "state": _held("optimizer_state", 2 * 4 * 4 * (4096 * 4096 + 4096) + 8 * 512 * 0),
    "leak": _leak,
}


def kept_files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("oom-*.log"))


def test_what_is_killed_right_after_leaves_its_last_figures_with_a_viewer(tmp_path: pathlib.Path) -> None:
    """GIVEN a program that SIGKILL ends right after the error, as the system's killer does, THEN the log has all."""
    done, log = watched(tmp_path, "--later", "--killed", "fragmentation")
    assert done.returncode == -signal.SIGKILL
    [(event, session)] = errors(log)
    same_figures(event, session, json.loads(done.stdout.splitlines()[-1])[1])
    _pins(event, session)
    assert "memtui:   fragmentation: " in done.stderr


@pytest.mark.parametrize("killed", [True, False])
def test_without_a_viewer_a_file_is_kept(tmp_path: pathlib.Path, killed: bool) -> None:
    """GIVEN nobody who watches, THEN `memtui open` shows the error from a file that only its owner may read."""
    environment = programs.with_agent(environment_of(tmp_path), tmp_path)
    arguments = ["--killed"] if killed else []
    with programs.started(
        PROGRAM, *arguments, "full", "fragmentation", environment=environment, stdout=subprocess.PIPE
    ) as process:
        output = process.communicate(timeout=200)[0].decode()
        assert process.returncode == (-signal.SIGKILL if killed else 0)
    [path] = kept_files(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    found = errors(path)
    told = [json.loads(line) for line in output.splitlines()]
    assert len(found) == len(told) == (1 if killed else 2)
    for (event, session), (_, said) in zip(found, told):
        same_figures(event, session, said)
    shown = subprocess.run(
        [sys.executable, "-m", "memtui", "open", "--headless", str(path)],
        env=environment_of(tmp_path),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert "full: 300.00 MiB were asked for" in shown.stdout


def test_after_attaching(tmp_path: pathlib.Path) -> None:
    """GIVEN a program that was started without the agent, THEN the same is told once it is in."""
    environment, log = environment_of(tmp_path), tmp_path / "attached.log"
    causes = {"fragmentation": "fragmentation", "evaluation": "evaluation peak"}
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
    for kind, (event, session), figures in zip(causes.values(), found, said):
        assert build_story(session, event).answer.cause.kind == kind
        assert f"memtui:   {kind}: " in printed
        same_figures(event, session, figures)


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
