"""Programs in files whose names are no text: torch cannot tell of call sites in them."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.support.exhausted import environment_of

pytestmark = pytest.mark.virtual_gpu

_STEPS = 14
_PROGRAM = f"""
import time

import torch

model = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.Adam(model.parameters())
for _ in range({_STEPS}):
    batch = torch.randn(8, 64, device="cuda")
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
    time.sleep(0.2)
"""


def test_steps_are_counted_to_the_end(tmp_path: pathlib.Path) -> None:
    """GIVEN a loss that outlives the recorded step, THEN all but a look at its block goes on."""
    program = os.fsencode(tmp_path) + b"/train-\xff\xfe.py"
    with open(program, "w", encoding="utf-8") as file:
        file.write(_PROGRAM)
    log = tmp_path / "run.log"
    command = [sys.executable, "-m", "memtui", "run", "--headless", "--log", str(log), program]
    done = subprocess.run(command, env=environment_of(tmp_path), capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in log.read_text().splitlines()]
    events = [each["name"] for each in told if each["kind"] == "event"]
    assert "record_refused" in events
    assert "agent_error" not in events
    assert [each for each in told if each["kind"] == "frame"][-1]["step"] == _STEPS
