"""The state and the temporaries of torch's optimizers, told before their first step, against the allocator."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
from typing import Any

import pytest

from memtui.sources.log_reader import LogReader
from memtui.sources.optimizer_trials import figures_of
from tests.support import programs
from tests.support.virtual_gpu import virtual_environment

pytestmark = pytest.mark.virtual_gpu
inside = pytest.importorskip("memtui.optimizing.inside")

#: A block may be larger than its tensor, where no more than this would be left of a segment.
_UNSPLIT_BYTES = 1 << 20


@pytest.fixture(scope="module")
def first_steps() -> list[dict[str, Any]]:
    environment = (
        programs.plain_environment()
        | virtual_environment(memory="2GiB")
        | {"PYTHONPATH": str(programs.PROGRAMS.parents[1])}
    )
    command = programs.command(str(programs.PROGRAMS / "first_steps.py"))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_optimizer_is_told_before_its_first_step(first_steps: list[dict[str, Any]]) -> None:
    assert len(first_steps) >= 20
    for real in first_steps:
        figures = figures_of(inside.answer(real["asked"]))
        assert "reason" not in figures, (real["name"], figures)
        if real["name"].startswith("LBFGS"):
            assert figures["decided"]
            continue
        assert figures["state_bytes"] == real["state"], real["name"]
        for told, added in zip((figures["first_bytes"], figures["later_bytes"]), real["added"]):
            if told is not None and "Adafactor" not in real["name"]:  # its kernels' temporaries are torch's own affair
                assert 0 <= added - told <= 4 * _UNSPLIT_BYTES, real["name"]


def test_a_viewer_tells_it_before_the_first_step(tmp_path: pathlib.Path) -> None:
    """A class of the program's own folder, with the program's own interpreter; what it says comes true."""
    environment = programs.plain_environment() | virtual_environment(memory="2GiB")
    environment["MEMTUI_RUNTIME_DIR"] = str(tmp_path)
    log, go = tmp_path / "log", tmp_path / "go"
    command = [sys.executable, "-m", "memtui", "run", "--headless", "--log", str(log), "--"]
    command += [sys.executable, str(programs.PROGRAMS / "waiting.py"), str(go)]
    with open(tmp_path / "out", "w", encoding="utf-8") as out:
        child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        end = time.monotonic() + 100
        while not (log.exists() and "optimizer_trial" in log.read_text(encoding="utf-8")):
            assert child.poll() is None, (tmp_path / "out").read_text(encoding="utf-8")
            assert time.monotonic() < end, "no trial"
            time.sleep(0.2)
        go.touch()
        assert child.wait(60) == 0
    finally:
        go.touch()
        child.kill()
        child.wait()
    session = LogReader(str(log)).whole
    assert session.model is not None
    (optimizer,) = session.model.optimizers
    trial = session.trial(optimizer, "cuda:0")
    assert trial is not None
    assert trial.where == "optimizers:Blockwise"
    assert optimizer.state_bytes == {"cuda:0": sum(_state_sizes())}
    assert trial.state_bytes == sum(-(-size // 512) * 512 for size in _state_sizes())


def _state_sizes() -> list[int]:
    """Of three layers' first and second moments: 8 bits an element, and a scale of four bytes for each 256."""
    return 3 * 2 * [1024 * 1024, 4 * 1024 * 1024 // 256, 1024, 4 * 1024 // 256]
