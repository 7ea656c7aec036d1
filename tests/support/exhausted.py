"""Runs the program that runs out of memory, and compares what was noted with what torch itself says."""

from __future__ import annotations

import io
import pathlib
import subprocess
import sys
from typing import Any

from memtui.analysis.oom.live import live_evidence
from memtui.analysis.oom.parse import find_messages
from memtui.analysis.oom.story import build_story
from memtui.session.session import Session
from memtui.sources.log_reader import LogReader
from memtui.wire.frames import Event
from tests.support import programs
from tests.support.virtual_gpu import virtual_environment

PROGRAM = str(programs.PROGRAMS / "failing.py")
_ROOT = programs.PROGRAMS.parents[1]


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
    bands = build_story(session, event).bands
    assert sum(each.figure.value or 0 for each in bands) == event.figures["device_total_bytes"]
    assert min(each.figure.value or 0 for each in bands) > 0
