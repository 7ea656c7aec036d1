"""`python -m memtui.virtual_gpu` as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.virtual_gpu import require_virtual_gpu

pytestmark = pytest.mark.virtual_gpu

_ROOT = str(Path(__file__).resolve().parents[2])


@pytest.fixture(autouse=True)
def _virtual_gpu() -> None:
    require_virtual_gpu()


def _command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memtui.virtual_gpu", *arguments],
        env={**os.environ, "PYTHONPATH": _ROOT, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_it_becomes_the_command() -> None:
    source = "import sys, torch; print(torch.cuda.mem_get_info(), sys.argv); sys.exit(7)"
    done = _command("--memory", "2GiB", "--count", "2", "--", sys.executable, "-c", source, "--memory", "x")
    assert done.stdout == f"({2 << 30}, {2 << 30}) ['-c', '--memory', 'x']\n"
    assert (done.returncode, done.stderr) == (7, "")


def test_the_report() -> None:
    source = "import torch; x = torch.empty(100 << 20, dtype=torch.uint8, device='cuda'); print(x[0].item())"
    done = _command("--report", "--memory", "1GiB", "--context", "300MiB", "--", sys.executable, "-c", source)
    assert done.returncode == 0
    assert "device 0: peak 400.0 MiB of 1024.0 MiB (context 300.0 MiB included), 0 refused" in done.stderr
    assert "1 host reads of computed values were answered with zeros" in done.stderr


def test_only_build() -> None:
    done = _command("--build")
    assert done.returncode == 0
    assert Path(done.stdout.strip()) == require_virtual_gpu().path


def test_the_check() -> None:
    done = _command("--check", "--name", "NVIDIA L4")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "works: NVIDIA L4"


def test_a_gpu_by_name_and_what_is_said_besides() -> None:
    source = """
import torch
p = torch.cuda.get_device_properties(0)
print(p.name, p.total_memory, p.major, p.multi_processor_count, torch.cuda.mem_get_info()[0])
"""
    program = ("--", sys.executable, "-c", source)
    total = 25_250_627_584
    assert (
        _command("--gpu", "4090", *program).stdout == f"NVIDIA GeForce RTX 4090 {total} 8 128 {total - (426 << 20)}\n"
    )
    besides = ("--memory", "2GiB", "--context", "512MiB", "--cc", "9.0", "--name", "mine")
    assert _command("--gpu", "4090", *besides, *program).stdout == f"mine {2 << 30} 9 128 {3 << 29}\n"
    assert _command("--gpu", "3GiB", *program).stdout == f"virtual GPU {3 << 30} 8 84 {3 << 30}\n"


def test_the_list() -> None:
    done = _command("--list", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert "a100-80g                 79.3 c   8.0  108        922 c" in done.stdout.splitlines()


def test_a_list_that_nobody_reads_to_its_end() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nowhere:
        done = subprocess.run(
            [sys.executable, "-m", "memtui.virtual_gpu", "--list"],
            env={**os.environ, "PYTHONPATH": _ROOT},
            stdout=nowhere,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.stderr == b""


def test_errors_are_a_problem_and_a_fix() -> None:
    wrong_size = _command("--memory", "24GB", "--", "true")
    assert wrong_size.returncode == 1
    assert wrong_size.stderr == "memtui: '24GB' is not a size\n        write 24GiB, 500MiB or plain bytes\n"
    several = _command("--gpu", "v100-pcie", "--", "true")
    assert several.returncode == 1
    assert several.stderr == (
        "memtui: 'v100-pcie' may be one of several GPUs\n        name one of v100-pcie-16g, v100-pcie-32g\n"
    )
    unknown = _command("--", "no-such-command")
    assert unknown.returncode == 127
    assert unknown.stderr == "memtui: there is no command no-such-command\n"
    nothing = _command()
    assert nothing.returncode == 2
    assert "name a command" in nothing.stderr


def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    done = _command("--", str(python), "train.py")
    assert done.returncode == 1
    assert done.stderr == f"memtui: {python} has no torch\n        name another interpreter, such as {sys.executable}\n"


def test_a_launcher_under_it_starts_anew() -> None:
    # A training that is planned from inside a virtual GPU gets devices of its own.
    source = """
import os, subprocess, sys
outer = dict(os.environ)
inner = subprocess.run([sys.executable, '-m', 'memtui.virtual_gpu', '--', 'env'], capture_output=True, text=True).stdout
inner = dict(line.split('=', 1) for line in inner.splitlines() if '=' in line)
print(inner['VGPU_SHM'] != outer['VGPU_SHM'], inner['LD_PRELOAD'] == outer['LD_PRELOAD'])
"""
    done = _command("--", sys.executable, "-c", source)
    assert done.stdout == "True True\n"
