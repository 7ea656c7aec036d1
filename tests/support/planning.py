"""Calls `memtui plan` as a user does, in a folder of the test's own."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

from tests.support import programs
from tests.support.virtual_gpu import require_virtual_gpu

ROOT = pathlib.Path(__file__).resolve().parents[2]
FITS, DOES_NOT_FIT, UNKNOWN = 0, 3, 4
TRAINING = """
import os, pathlib, sys, torch
batch = int(sys.argv[sys.argv.index("--batch") + 1]) if "--batch" in sys.argv else int(os.environ.get("BATCH", "64"))
pathlib.Path("checkpoint.txt").write_text("kept")
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(int(os.environ.get("STEPS", "8"))):
    model(torch.randn(batch, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
"""


def environment(tmp_path: pathlib.Path) -> dict[str, str]:
    """What a plan is called with: this installation, and sockets in the folder."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700, exist_ok=True)
    return programs.plain_environment() | {"MEMTUI_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(ROOT)}


def called(tmp_path: pathlib.Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`memtui plan` with these words; skips where there are no virtual GPUs."""
    require_virtual_gpu()
    return subprocess.run(
        [sys.executable, "-m", "memtui", "plan", *words],
        cwd=tmp_path,
        env=environment(tmp_path) | variables,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


def plan(tmp_path: pathlib.Path, *words: str, status: int, **variables: str) -> Any:
    """Its answer, parsed where the words ask for JSON; `status` is what it must end with."""
    done = called(tmp_path, *words, **variables)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout


def write_script(tmp_path: pathlib.Path, text: str = TRAINING) -> str:
    """Writes the program; its name in the folder."""
    (tmp_path / "train.py").write_text(text)
    return "train.py"
