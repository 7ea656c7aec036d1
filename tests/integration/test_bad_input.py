"""What cannot be done is said in one line with the way out: no traceback, and a status that is not 0."""

from __future__ import annotations

import os
import pathlib
import pickle
import shutil
import subprocess
import sys
from typing import Any

import pytest

from memtui.cli import THEMES
from memtui.tui import palette

FOLDER = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def env(sockets: pathlib.Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MEMTUI_", "XDG_"))}
    return {**inherited, "MEMTUI_RUNTIME_DIR": str(sockets), "PYTHONPATH": str(FOLDER)}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A script that takes a moment, and a log of less than a second."""
    (tmp_path / "train.py").write_text("import time\ntime.sleep(1.2)\n")
    second = '{"kind":"host","time_ns":20,"alive":true,"rss_bytes":1048576}\n'
    (tmp_path / "short.log").write_text('{"kind":"log","time_ns":10,"format":"memtui log","version":1}\n' + second)
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "newer.log").write_text('{"format":"memtui log","version":7,"written_by":"memtui \\u001b[31m9.1.0"}\n')
    (tmp_path / "steps.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": []}, 4))
    (tmp_path / "begun.log").write_text('{"kind":"log","time_ns":10,"format":"memtui log","version":1}\n{"kind":"ho')
    return tmp_path


def memtui(env: dict[str, str], folder: pathlib.Path, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(
        [sys.executable, "-m", "memtui", *words],
        check=False,
        **{"env": env, "cwd": folder, "timeout": 60, **streams, **more},
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train.py", "train.py is no command: memtui run train.py"),
        ("run --frames inf train.py", "a whole number, at least 1"),
        ("run --frames nan train.py", "a whole number, at least 1"),
        ("run --frames 0 train.py", "a whole number, at least 1"),
        ("run --rate abc train.py", "'abc' is no number"),
        ("run --theme loud train.py", "no theme 'loud': dark, light"),
        ("run --device gpu train.py", "write cuda:0, or host"),
        ("run --bogus train.py", "--bogus is not known here (see memtui run --help)"),
        ("run --log train.py train.py", "train.py is there and is no log of this memtui: name another file"),
        ("run short.log", "short.log is a log, not a script: memtui open short.log"),
        ("ps --json", "--json is not known here (see memtui ps --help)"),
        ("attach --pid x", "'x' is no process id; memtui ps lists"),
        ("open pipe", "save the log first"),
        ("open empty.log", "is not a memtui log"),
        ("open begun.log", "holds no figures"),
        ("open newer.log", "newer.log is a log of version 7, by memtui 9.1.0: this memtui reads version 1"),
        ("open --device cuda:3 short.log", "cuda:3 is not in this log: --device host"),
        ("report", "the following arguments are required: FILE"),
        ("report no.log", "cannot read no.log: No such file or directory"),
        ("report empty.log", "empty.log is empty: memtui run --log FILE train.py writes a log"),
        ("report begun.log", "holds no figures"),
        ("report newer.log", "newer.log is a log of version 7, by memtui 9.1.0: this memtui reads version 1"),
        ("report train.py", "train.py is not a memtui log"),
        ("report steps.pickle", "steps.pickle is a memory snapshot: memtui open steps.pickle"),
        ("report short.log", "short.log has no figures of PyTorch: the program used none"),
        ("report pipe", "save the log first"),
        ("run --report no/out.md train.py", "cannot write no/out.md: No such file or directory"),
        ("run --report=out train.py", "'out': name a file that ends in .md, .json, .txt"),
    ],
)
def test_one_line(line: str, said: str, env: dict[str, str], folder: pathlib.Path) -> None:
    os.mkfifo(folder / "pipe")

    done = memtui(env, folder, *line.split())

    assert done.returncode not in (0, None)
    assert done.stdout == b""
    assert done.stderr.startswith(b"memtui: ")
    assert done.stderr.count(b"\n") == 1, done.stderr
    assert b"\x1b" not in done.stderr
    assert said in done.stderr.decode()
    assert (folder / "train.py").read_text().startswith("import")


def test_themes_are_those_that_there_are() -> None:
    assert set(THEMES) == {"auto", *palette.BY_NAME}


def test_a_folder_that_is_gone(env: dict[str, str], folder: pathlib.Path) -> None:
    """GIVEN that the current folder was removed, THEN a command that would run says where not."""
    gone = folder / "gone"
    gone.mkdir()
    code = "import os, runpy, shutil, sys\nshutil.rmtree(os.getcwd())\nrunpy.run_module('memtui', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--", "true"], env=env, cwd=gone, capture_output=True, check=False
    )

    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1), done.stderr
    assert b"the current folder cannot be used" in done.stderr
    assert shutil.which("true")


@pytest.mark.parametrize("words", [("ps",), ("open", "short.log")])
def test_a_full_disk(words: tuple[str, ...], env: dict[str, str], folder: pathlib.Path) -> None:
    with open("/dev/full", "wb") as full:
        done = memtui(env, folder, *words, stdout=full)

    assert (done.returncode, done.stderr) == (1, b"memtui: No space left on device\n")


@pytest.mark.parametrize("words", ["--help", "run --help", "demo --help", "ps", "open short.log", "run train.py"])
def test_other_encodings(words: str, env: dict[str, str], folder: pathlib.Path) -> None:
    """Where a stream has no more than ASCII, that is what is written."""
    done = memtui({**env, "PYTHONIOENCODING": "ascii"}, folder, *words.split())

    assert done.returncode == 0
    assert done.stdout + done.stderr
    assert (done.stdout + done.stderr).isascii()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_streams_that_are_closed(closed: str, env: dict[str, str], folder: pathlib.Path) -> None:
    """They are the program's to miss."""
    for words in ("run train.py", "ps", "open short.log"):
        line = f"exec {sys.executable} -m memtui {words} {closed}"
        done = subprocess.run(["sh", "-c", line], env=env, cwd=folder, capture_output=True, timeout=60, check=False)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), (words, done.stderr)


def test_a_log_goes_on_without_its_lines(env: dict[str, str], folder: pathlib.Path) -> None:
    """GIVEN that standard error cannot be written to, THEN the log is as complete as ever."""
    (folder / "train.py").write_text("import time\ntime.sleep(2.6)\n")
    with open("/dev/full", "wb") as full:
        done = memtui(env, folder, "run", "--log", "new.log", "train.py", stderr=full)

    assert done.returncode == 0
    kinds = [line.partition('"kind":"')[2].partition('"')[0] for line in (folder / "new.log").read_text().splitlines()]
    assert kinds.count("host") >= 3
    assert kinds[-1] == "end"


def test_a_short_log_is_not_silent(env: dict[str, str], folder: pathlib.Path) -> None:
    """One of less than a second has its last moment."""
    assert memtui(env, folder, "open", "short.log").stdout.decode().endswith("so no forecast\n")


def test_a_script_from_a_pipe(env: dict[str, str], folder: pathlib.Path) -> None:
    """It can be read once, by Python."""
    line = f"{sys.executable} -m memtui run --quiet <(echo \"print('from a pipe')\")"
    done = subprocess.run(["bash", "-c", line], env=env, cwd=folder, capture_output=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (0, b"from a pipe\n"), done.stderr
