"""The training is untouched: the same bytes on each stream and the same exit status, with the agent and without."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

from tests.support import programs
from tests.support.virtual_gpu import virtual_environment

KINDS = (
    "mlp",
    "gpt",
    "loader_fork",
    "loader_spawn",
    "compiled",
    "saved",
    "averaged",
    "crash_forward",
    "crash_backward",
    "out_of_memory",
    "out_of_memory_backward",
    "interrupted_forward",
    "interrupted_backward",
    "os_exit",
    "sys_exit",
)
EXPECTED_STATUS = {"os_exit": 7, "sys_exit": 3, "interrupted_forward": -2, "interrupted_backward": -2}


def run(kind: str, environment: dict[str, str], folder: pathlib.Path) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        programs.command(str(programs.PROGRAMS / "training.py"), kind),
        env=environment,
        cwd=folder,
        capture_output=True,
        timeout=170,
        check=False,
    )
    # torch stamps its own warnings with the time of day.
    return done.returncode, done.stdout, re.sub(rb"\[W\d{4} [\d:.]+ ", b"[W ", done.stderr)


def compare(kind: str, base: dict[str, str], tmp_path: pathlib.Path) -> None:
    without = run(kind, base, tmp_path)
    observed = run(kind, programs.with_agent(base, tmp_path), tmp_path)
    assert observed == without
    failed = kind.startswith(("crash", "out_of_memory"))
    assert without[0] == EXPECTED_STATUS.get(kind, 1 if failed else 0), without[2].decode()


@pytest.mark.parametrize("kind", KINDS)
def test_on_the_processor(kind: str, tmp_path: pathlib.Path) -> None:
    """Losses bit for bit, random states, sizes of what is saved, tracebacks, status."""
    programs.require_torch()
    compare(kind, programs.plain_environment() | {"CUDA_VISIBLE_DEVICES": ""}, tmp_path)


@pytest.mark.virtual_gpu
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "compiled"])
def test_on_the_allocator(kind: str, tmp_path: pathlib.Path) -> None:
    """The caching allocator's own statistics, its peaks and counts of allocations included, and its errors."""
    compare(kind, programs.plain_environment() | virtual_environment(memory="2GiB"), tmp_path)
