"""A cap that a program sets itself, from the allocator to the screen, and an error that it makes and that is caught."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from memtui.analysis.build import build_view
from memtui.sources.log_reader import LogReader
from tests.support import programs
from tests.support.virtual_gpu import virtual_environment

pytestmark = pytest.mark.virtual_gpu

GIB = 1 << 30
_PROGRAM = """
import time, torch
from torch import nn
if not hasattr(torch.cuda, 'get_per_process_memory_fraction'):
    raise SystemExit(7)
torch.cuda.set_per_process_memory_fraction(0.5)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters())
def train(steps):
    for _ in range(steps):
        model(torch.randn(512, 1024, device='cuda')).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
train(30)
try:
    torch.empty(3 << 30, dtype=torch.uint8, device='cuda')
except torch.cuda.OutOfMemoryError:
    pass
train(10)
torch.cuda.set_per_process_memory_fraction(1.0)
train(40)
"""


def test_a_cap_is_the_capacity_while_it_lasts(tmp_path: pathlib.Path) -> None:
    """GIVEN half of a device of 4 GiB, later all of it, THEN verdicts are of what there was then."""
    log = tmp_path / "run.log"
    tmp_path.chmod(0o700)
    environment = programs.plain_environment() | virtual_environment(memory="4GiB")
    environment |= {"PYTHONPATH": str(programs.PROGRAMS.parents[1]), "MEMTUI_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "memtui", "run", "--headless", "--log", str(log), "--", sys.executable, "-c"]
    done = subprocess.run([*command, _PROGRAM], env=environment, stdout=-3, timeout=300, check=False)
    if done.returncode == 7:
        pytest.skip("this torch does not tell a cap")
    assert done.returncode == 0

    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    frames = [
        (line["time_ns"], line["devices"]["cuda:0"].get("allowed_bytes"))
        for line in lines
        if line["kind"] == "frame" and "cuda:0" in line["devices"]
    ]
    caps = [cap for _, cap in frames]
    lifted = caps.index(None)
    assert lifted > 20
    assert set(caps[:lifted]) == {2 * GIB}
    assert set(caps[lifted:]) == {None}

    reader = LogReader(str(log))
    try:
        oom = next(event for event in reader.whole.events if event.name == "oom")
        (capped, _), (free, _) = frames[lifted - 1], frames[-5]
        early, view = (build_view(reader.session_at(time), "cuda:0", time) for time in (oom.time_ns + 1, capped))
        assert early.verdict.text.endswith(" · 2.0 GiB allowed; the program goes on")
        assert any("3.0 GiB asked for on top of" in line for line in view.forecast)
        minute_ns = 60 * 10**9
        for time, said in (
            (capped, " of 2.0 GiB this process may have (set_per_process_memory_fraction)"),
            (free, " of 4.0"),
        ):
            later = build_view(reader.session_at(time), "cuda:0", oom.time_ns + minute_ns)
            assert said in later.verdict.text
    finally:
        reader.close()
