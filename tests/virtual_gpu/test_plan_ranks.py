"""`memtui plan` of programs that a launcher starts, as torchrun does: whose figures it tells, and none is cut off."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.support import programs
from tests.support.virtual_gpu import require_virtual_gpu

pytestmark = pytest.mark.virtual_gpu

_ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Starts itself once for each rank; it imports torch, as torchrun does, and so has an agent of its own.
_LAUNCHER = """
import os, subprocess, sys, time, torch

def launch(ranks):
    started = []
    for rank in range(ranks):
        env = {**os.environ, "WORLD_SIZE": str(ranks), "RANK": str(rank)}
        started.append(subprocess.Popen([sys.executable, __file__], env=env))
    sys.exit(max(child.wait() for child in started))

def train(rank, steps, pause, slow):
    torch.cuda.set_device(rank)
    torch.zeros(1, device="cuda")
    time.sleep(slow)
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8))).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        model(torch.randn(64, 2048, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(pause)
"""


def _plan(tmp_path: pathlib.Path, main: str, *words: str) -> Any:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    (tmp_path / "launch.py").write_text(_LAUNCHER + main)
    done = subprocess.run(
        [sys.executable, "-m", "memtui", "plan", "--json", "--gpu", "a100-40g", *words, "launch.py"],
        cwd=tmp_path,
        env=programs.plain_environment() | {"MEMTUI_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def _virtual_gpu() -> None:
    require_virtual_gpu()


def test_a_launcher_lives_as_long_as_its_rank_is_watched(tmp_path: pathlib.Path) -> None:
    """The launcher's own agent loses its viewer to the rank, which trains for 14 seconds more."""
    main = """
if "RANK" in os.environ:
    train(0, 100, pause=0.5, slow=0)
launch(1)
"""
    answer = _plan(tmp_path, main, "--steps", "28")
    assert (answer["fits"], answer["ended"], answer["steps"]) == (True, "steps", 28)


def test_the_answer_is_of_rank_0_though_another_comes_first(tmp_path: pathlib.Path) -> None:
    main = """
if "RANK" in os.environ:
    rank = int(os.environ["RANK"])
    time.sleep(0 if rank else 1.5)
    train(rank, 40, pause=0.2, slow=0)
    sys.exit()
launch(2)
"""
    answer = _plan(tmp_path, main, "--gpus", "2")
    first, second = answer["devices"]
    assert first["peak_allocated_bytes"] == answer["peak_allocated_bytes"] > 0
    assert second["peak_allocated_bytes"] is None
    assert answer["composition"]["at_peak"]


def test_a_rank_that_is_later_comes_to_its_peak(tmp_path: pathlib.Path) -> None:
    """Rank 0 is steady after a second; the other one has a context by then, and its model after three more."""
    main = """
if "RANK" in os.environ:
    rank = int(os.environ["RANK"])
    train(rank, 1000, pause=0.05, slow=4 * rank)
    sys.exit()
launch(2)
"""
    answer = _plan(tmp_path, main, "--gpus", "2")
    first, second = (device["peak_device_bytes"] - answer["context_bytes"] for device in answer["devices"])
    assert answer["ended"] == "steady"
    assert second >= 0.9 * first
