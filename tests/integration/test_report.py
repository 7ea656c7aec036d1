"""The report at the end of `memtui run`, where there is no GPU, and where there is nothing to report."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from tests.support import programs

ROOT = programs.PROGRAMS.parents[1]
TRAINING = """
import time, torch
from torch import nn
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
optimizer = torch.optim.Adam(model.parameters())
rows = torch.randn(64, 256)
for step in range(15):
    model(rows).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.1)
print("trained")
if ENDS:
    raise KeyError("no such \\x1b[31mshard")
"""


def run(environment: dict[str, str], folder: pathlib.Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A script under `memtui run --headless --quiet`."""
    folder.chmod(0o700)
    (folder / "train.py").write_text(code)
    environment = environment | {"PYTHONPATH": str(ROOT), "MEMTUI_RUNTIME_DIR": str(folder)}
    command = [sys.executable, "-m", "memtui", "run", "--headless", "--quiet", *words, "train.py"]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(command, env=environment, cwd=folder, text=True, timeout=120, check=False, **streams)


def on_host() -> dict[str, str]:
    """Without a GPU; skips where there is no torch."""
    programs.require_torch()
    return programs.plain_environment() | {"CUDA_VISIBLE_DEVICES": ""}


def test_a_training_on_the_host(tmp_path: pathlib.Path) -> None:
    """GIVEN no name of a file, THEN the page is on standard error, and standard output is the program's alone."""
    done = run(on_host(), tmp_path, TRAINING.replace("ENDS", "False"), "--report")

    assert (done.returncode, done.stdout) == (0, "trained\n")
    page = done.stderr[done.stderr.index("train.py · 15 steps") :]
    count = 256 * 1024 + 1024 + 1024 * 256 + 256
    assert f"  parameters         {count:,}  Sequential: 2.0 MiB on host\n" in page
    assert "  optimizer       Adam: 4.0 MiB of state, 2 x the parameters it steps\n" in page
    assert "\nhost · host memory · " in page
    assert "steps are recorded of a GPU only" in page
    assert "PyTorch against the system\n" in page
    assert all(len(line) <= 80 for line in page.splitlines())


def test_a_training_that_raised(tmp_path: pathlib.Path) -> None:
    """GIVEN an exception, THEN it is in the report, harmless, and the program's status is passed on."""
    done = run(on_host(), tmp_path, TRAINING.replace("ENDS", "True"), "--report", "out.md")

    assert done.returncode == 1
    assert "memtui: the report is in out.md\n" in done.stderr
    text = (tmp_path / "out.md").read_text()
    assert text.startswith("# Memory of train.py\n\n15 steps in ")
    assert "\nEnded by KeyError: 'no such " in text
    assert "\x1b" not in text


def test_nothing_to_report(tmp_path: pathlib.Path) -> None:
    """GIVEN a program without PyTorch, THEN one line says so, and its status is its own."""
    done = run(programs.plain_environment(), tmp_path, "raise SystemExit(3)\n", "--report", "out.json")

    assert done.returncode == 3
    assert done.stderr.strip() == "memtui: no report: the program used no PyTorch, or no agent answered from it"
    assert not (tmp_path / "out.json").exists()
