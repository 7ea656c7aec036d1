"""What a program that ran out of memory leaves behind where nobody watched it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from memtui.agent.kept import FILES_KEPT
from tests.support import programs
from tests.support.exhausted import PROGRAM, environment_of, errors, same_figures

pytestmark = pytest.mark.virtual_gpu


def kept_files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("oom-*.log"))


def unwatched(folder: pathlib.Path, *arguments: str) -> tuple[int, int, list[list[object]]]:
    """Runs it with the agent and without a viewer: its pid, its status, and what it said of each error."""
    environment = programs.with_agent(environment_of(folder), folder)
    with programs.started(PROGRAM, *arguments, environment=environment, stdout=subprocess.PIPE) as process:
        output = process.communicate(timeout=200)[0].decode()
        return process.pid, process.returncode, [json.loads(line) for line in output.splitlines()]


def memtui(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memtui", *arguments]
    return subprocess.run(command, env=environment_of(folder), capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize("killed", [True, False])
def test_a_file_is_kept_and_opened(tmp_path: pathlib.Path, killed: bool) -> None:
    """GIVEN nobody who watches, THEN `memtui open` shows each error from a file that only its owner may read."""
    pid, status, told = unwatched(tmp_path, *(["--killed"] if killed else []), "full", "fragmentation")
    assert status == (-signal.SIGKILL if killed else 0)
    [path] = kept_files(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    found = errors(path)
    assert len(found) == len(told) == (1 if killed else 2)
    for (event, session), (_, said) in zip(found, told):
        same_figures(event, session, said)
    shown = memtui(tmp_path, "open", "--headless", str(path))
    assert shown.returncode == 0, shown.stderr
    assert "full: 300.00 MiB were asked for" in shown.stdout
    late = memtui(tmp_path, "attach", "--headless", "--pid", str(pid))
    assert late.returncode != 0
    assert f"memtui open {path}" in late.stderr


def test_it_is_told_of_where_a_program_has_ended_in_the_background(tmp_path: pathlib.Path) -> None:
    """GIVEN a program that runs out of memory after its viewer has left, THEN who comes back is told why, and where."""
    script = f"sleep 2; exec {sys.executable} {PROGRAM} --killed full"
    left = memtui(tmp_path, "run", "--headless", "--frames", "1", "--", "sh", "-c", script)
    assert left.returncode == 0, left.stderr
    [pid] = map(int, re.findall(r"attach --pid (\d+)", left.stderr))
    programs.wait_for(lambda: kept_files(tmp_path), what="the kept file", seconds=100)
    programs.wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists(), what="the program's end")
    shown = memtui(tmp_path, "attach", "--headless", "--pid", str(pid))
    assert shown.returncode == 128 + signal.SIGKILL
    assert "full: 300.00 MiB were asked for" in shown.stdout
    assert f"memtui open {kept_files(tmp_path)[0]}" in shown.stdout


def test_few_files_are_kept(tmp_path: pathlib.Path) -> None:
    """GIVEN files of many programs, THEN the oldest go, and nothing else in the folder does."""
    tmp_path.chmod(0o700)
    others = [tmp_path / f"oom-20260101-0000{number:02}-{number}.log" for number in range(FILES_KEPT + 3)]
    for path in (*others, tmp_path / "notes.log"):
        path.write_text("kept")
    unwatched(tmp_path, "impossible")
    assert len(kept_files(tmp_path)) == FILES_KEPT
    assert kept_files(tmp_path)[: FILES_KEPT - 1] == others[-(FILES_KEPT - 1) :]
    assert (tmp_path / "notes.log").exists()


def test_where_no_file_can_be_written_the_training_goes_on(tmp_path: pathlib.Path) -> None:
    """GIVEN a folder that is not the user's own, THEN the program catches its errors as ever, and nothing is kept."""
    environment = programs.with_agent(environment_of(tmp_path), tmp_path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    environment["MEMTUI_RUNTIME_DIR"] = str(link)
    with programs.started(
        PROGRAM, "impossible", "full", environment=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        output, complaints = process.communicate(timeout=200)
    assert process.returncode == 0
    assert [json.loads(line)[0] for line in output.splitlines()] == ["impossible", "full"]
    assert b"memtui" not in complaints
    assert [name for name in os.listdir(tmp_path) if name.startswith("oom-")] == []
