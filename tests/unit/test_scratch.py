"""The folder for what is thrown away."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from memtui.planning.leftovers import MARK
from memtui.planning.scratch import make_scratch, measure, remove_scratch


@pytest.fixture
def ended() -> int:
    """The pid of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def old_folder(base: pathlib.Path, maker: int) -> pathlib.Path:
    folder = base / f"memtui-thrown-{maker}-abc"
    (folder / "layers").mkdir(parents=True)
    os.utime(folder, (5, 5))
    return folder


def test_what_a_killed_process_left_goes_with_the_next(tmp_path: pathlib.Path, ended: int) -> None:
    left, alive = old_folder(tmp_path, ended), old_folder(tmp_path, os.getpid())
    recent = tmp_path / f"memtui-thrown-{ended}-def"
    recent.mkdir()
    make_scratch(tmp_path)
    assert [folder.exists() for folder in (left, alive, recent)] == [False, True, True]


def test_what_still_runs_of_a_killed_process_ends_with_the_next(tmp_path: pathlib.Path, ended: int) -> None:
    left = tmp_path / f"memtui-thrown-{ended}-abc"
    left.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], env={MARK: str(left)}, stdin=subprocess.PIPE) as program:
        threading.Thread(target=program.wait, daemon=True).start()
        make_scratch(tmp_path)
        assert not left.exists()
        assert program.wait(5) == -signal.SIGKILL


def test_a_folder_whose_maker_lives_stays(tmp_path: pathlib.Path) -> None:
    left = old_folder(tmp_path, os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], env={MARK: str(left)}, stdin=subprocess.PIPE) as program:
        make_scratch(tmp_path)
        assert left.exists()
        program.communicate(b"\n")
        assert program.returncode == 0


def test_all_is_removed_whatever_its_rights(tmp_path: pathlib.Path) -> None:
    scratch = make_scratch(tmp_path)
    (scratch / "layers" / "deep").mkdir(parents=True)
    (scratch / "layers" / "deep" / "file").write_bytes(b"\1" * 5000)
    os.chmod(scratch / "layers" / "deep", 0)
    written = measure([scratch / "layers", scratch / "absent"])
    assert written.files == 1
    assert written.total_bytes >= 4096  # what it takes on the disk
    remove_scratch(scratch)
    assert os.listdir(tmp_path) == []
