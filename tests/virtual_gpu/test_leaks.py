"""A leak of a real training, from the allocator to the screen."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from memtui.analysis.build import build_view
from memtui.analysis.view import View
from memtui.sources.log_reader import LogReader
from tests.support import programs
from tests.support.virtual_gpu import virtual_environment

_ROOT = programs.PROGRAMS.parents[1]
PROGRAM = _ROOT / "tests" / "bench" / "programs" / "leaks.py"
pytestmark = pytest.mark.virtual_gpu


def last_view(kind: str, folder: pathlib.Path) -> View:
    """What the screen says at the end of a training of 240 steps."""
    log = folder / "run.log"
    folder.chmod(0o700)
    environment = programs.plain_environment() | virtual_environment(memory="4GiB")
    environment |= {"PYTHONPATH": str(_ROOT), "MEMTUI_RUNTIME_DIR": str(folder)}
    command = [sys.executable, "-m", "memtui", "run", "--headless", "--log", str(log), "--"]
    subprocess.run([*command, sys.executable, str(PROGRAM), kind], env=environment, check=True, timeout=120)
    reader = LogReader(str(log))
    try:
        session = reader.session_at(reader.end_ns - 1)
        return build_view(session, "cuda:0", reader.end_ns)
    finally:
        reader.close()


def test_scores_that_are_kept_are_a_leak(tmp_path: pathlib.Path) -> None:
    """GIVEN a tensor of 4 MiB kept at each step, THEN it grows by that, and the device is full in some hundred more."""
    view = last_view("leak: activations", tmp_path)

    assert view.growth.startswith("allocated grows 4.0 MiB a step (steps ")
    assert ": full in about " in view.growth


def test_a_log_that_is_cleared_is_none(tmp_path: pathlib.Path) -> None:
    """GIVEN losses and scores kept for as many as 50 steps, THEN nothing grows."""
    assert "allocated grows" not in last_view("logs that are cleared", tmp_path).growth


def test_a_workspace_that_stays_is_none(tmp_path: pathlib.Path) -> None:
    """GIVEN a workspace of cuBLAS, 8,519,680 bytes, that a stream of its own gets at step 100, THEN nothing grows."""
    view = last_view("a workspace that stays", tmp_path)
    log = str(tmp_path / "run.log")
    report = subprocess.run(
        [sys.executable, "-m", "memtui", "report", "--json", log],
        env=programs.plain_environment() | {"PYTHONPATH": str(_ROOT)},
        capture_output=True,
        check=True,
        timeout=60,
    )
    growth = json.loads(report.stdout)["devices"]["cuda:0"]["growth"]["growth"]

    assert "allocated grows" not in view.growth
    assert growth["note"].startswith("as steps began, ")
    assert growth["note"].endswith("a warm-up or a workspace that stays, not a leak")
    assert "bytes_per_step" not in growth
    reader = LogReader(log)
    floors = reader.whole.floors("cuda:0")
    reader.close()
    assert floors is not None
    sizes = {floor.step: floor.allocated_bytes for floor in floors.levels[0]}
    before, after = (max(size for step, size in sizes.items() if first <= step < last) for first, last in LATE)
    assert after - before == 8_519_680


#: Steps before the workspace was made, and after it.
LATE = ((20, 100), (101, 240))
