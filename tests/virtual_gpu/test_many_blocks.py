"""Programs with very many live blocks, that catch errors: what a viewer is sent, and what is left out of it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tests.support import programs
from tests.support.exhausted import environment_of

pytestmark = pytest.mark.virtual_gpu

_PROGRAM = str(programs.PROGRAMS / "crowded.py")


def test_all_that_is_told_of_very_many_blocks_can_be_sent(tmp_path: pathlib.Path) -> None:
    """GIVEN a first forward beside 150,000 blocks, THEN the graph comes without it, and the end is told."""
    log, errors = tmp_path / "run.log", 8
    command = [sys.executable, "-m", "memtui", "run", "--headless", "--log", str(log), "--"]
    done = subprocess.run(
        [*command, sys.executable, _PROGRAM, "150000", str(errors)],
        env=environment_of(tmp_path),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "that is no frame" not in done.stderr
    assert "exited with status 0" in done.stderr
    told = [json.loads(line) for line in log.read_text().splitlines()]
    [graph] = [each for each in told if each["kind"] == "backward_graph"]
    assert "forward" not in graph
    assert [each["kind"] for each in told].count("bye") == 1
    assert not [each for each in told if each["kind"] == "event" and each["name"] == "agent_error"]
    failed = [each for each in told if each["kind"] == "event" and each["name"] == "oom"]
    assert len(failed) == errors
    assert "classification" in failed[0]["failure"]
    # What torch makes of so many blocks would set off Python's collector hundreds of times.
    assert int(done.stdout) <= 2 * errors
