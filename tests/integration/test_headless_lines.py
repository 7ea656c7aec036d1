"""memtui's lines on the stream that the program writes to as well: each begins at the beginning of a line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from memtui.supervisor import child
from memtui.tui.terminal.emulator import Emulator

COLUMNS, LINES = 60, 24
#: Draws as progress bars do, behind whose last character the cursor stays; or whole lines.
PROGRAM = """
import sys, time
for number in range(30):
    sys.stderr.write(sys.argv[1].replace("N", str(number).zfill(2)))
    sys.stderr.flush()
    time.sleep(0.1)
"""


def drawn(tmp_path: Path, text: str) -> list[str]:
    """What a terminal shows of a program that writes `text` again and again, under `memtui run --headless`."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM, encoding="utf-8")
    master, slave = os.openpty()
    child.set_size(slave, COLUMNS, LINES)
    environment = {**os.environ, "MEMTUI_RUNTIME_DIR": str(tmp_path / "run")}
    process = subprocess.Popen(
        [sys.executable, "-m", "memtui", "run", "--headless", str(script), text],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=slave,
    )
    os.close(slave)
    emulator = Emulator(COLUMNS, LINES, lambda reply: None)
    while True:
        try:
            data = os.read(master, 65_536)
        except OSError:  # the last of the writers is gone
            break
        if not data:
            break
        emulator.feed(data)
    os.close(master)
    assert process.wait() == 0
    return [line.rstrip() for line in emulator.screen.display]


@pytest.mark.parametrize("text", ["\rN/30 |####", "\rN/30 |####\r", "line N\n"])
def test_each_begins_a_line_of_its_own(text: str, tmp_path: Path) -> None:
    """GIVEN a bar that is drawn over itself, or lines, THEN ours begin lines, of which none is lost or empty."""
    lines = drawn(tmp_path, text)

    said = [line for line in lines if "memtui:" in line]
    assert len(said) >= 2
    assert all(line.startswith("memtui: ") for line in said)
    last = max(number for number, line in enumerate(lines) if line)
    assert all(lines[: last + 1])


#: A bar on both streams, told apart by their letters.
BOTH = """
import sys, time
for number in range(15):
    for stream, letter in (sys.stdout, "o"), (sys.stderr, "e"):
        stream.write(f"\\r{letter}{number:02}")
        stream.flush()
    time.sleep(0.1)
"""


def run_with(tmp_path: Path, stdout: int | IO[bytes], stderr: int | IO[bytes], program: str = BOTH) -> tuple[Any, Any]:
    """What came through the streams of a program under `memtui run --headless`, where they are pipes."""
    script = tmp_path / "train.py"
    script.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "memtui", "run", "--headless", str(script)],
        env={**os.environ, "MEMTUI_RUNTIME_DIR": str(tmp_path / "run")},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    return done.stdout, done.stderr


def own_and_others(text: bytes) -> tuple[list[bytes], bytes]:
    """memtui's lines, and what is left without them and the line ends in front of them."""
    own, others = [], b""
    for line in text.split(b"\n"):
        if line.startswith(b"memtui: "):
            own.append(line)
        else:
            others += line
    return own, others


def bar(letter: str) -> bytes:
    return b"".join(b"\r%s%02d" % (letter.encode(), number) for number in range(15))


@pytest.mark.parametrize("kind", ["file", "appended file", "pipe"])
def test_streams_of_their_own(kind: str, tmp_path: Path) -> None:
    """GIVEN an unfinished bar, THEN our lines begin lines, and the stream that has none of them is as ever."""
    if kind == "pipe":
        out, err = run_with(tmp_path, subprocess.PIPE, subprocess.PIPE)
    else:
        mode = "wb" if kind == "file" else "ab"
        with open(tmp_path / "out", mode) as stdout, open(tmp_path / "err", mode) as stderr:
            run_with(tmp_path, stdout, stderr)
        out, err = (tmp_path / "out").read_bytes(), (tmp_path / "err").read_bytes()

    own, others = own_and_others(err)
    assert out == bar("o")
    assert len(own) >= 2
    assert b"memtui" not in others
    assert others == bar("e")


@pytest.mark.parametrize("kind", ["file", "appended file", "two descriptions", "pipe"])
def test_both_in_one(kind: str, tmp_path: Path) -> None:
    """`2>&1`, and the like: every line of ours begins one, and nothing of the program's is lost."""
    path = tmp_path / "log"
    if kind == "pipe":
        log, _ = run_with(tmp_path, subprocess.PIPE, subprocess.STDOUT)
    else:
        with open(path, "wb" if kind == "file" else "ab") as stdout, open(path, "ab") as second:
            run_with(tmp_path, stdout, second if kind == "two descriptions" else subprocess.STDOUT)
        log = path.read_bytes()

    own, others = own_and_others(log)
    assert len(own) >= 2
    assert b"memtui" not in others
    assert sorted(others.split(b"\r")) == sorted([*(bar("o") + bar("e")).split(b"\r")[1:], b""])


def test_whole_lines_in_a_file_have_no_empty_ones_between(tmp_path: Path) -> None:
    """There the file itself says where it ends."""
    with open(tmp_path / "err", "wb") as stderr:
        run_with(tmp_path, subprocess.DEVNULL, stderr, PROGRAM.replace("sys.argv[1]", "'line N\\n'"))

    lines = (tmp_path / "err").read_bytes().splitlines()
    assert len([line for line in lines if line.startswith(b"memtui: ")]) >= 3
    assert all(lines)


def test_a_terminal_without_our_lines_is_left_alone(tmp_path: Path) -> None:
    """GIVEN a bar on the terminal and standard error in a file, THEN the terminal has the program's bytes alone."""
    master, slave = os.openpty()
    child.set_size(slave, COLUMNS, LINES)
    with open(tmp_path / "err", "wb") as stderr, os.fdopen(slave, "wb") as stdout:
        run_with(tmp_path, stdout, stderr)
    assert os.read(master, 65_536) == bar("o")
    os.close(master)


def test_standard_error_may_be_written_and_not_read(tmp_path: Path) -> None:
    """An empty line in front of each of ours is better than half a line."""
    path = tmp_path / "log"
    path.touch(mode=0o222)
    if os.access(path, os.R_OK):
        pytest.skip("this user reads everything")
    with open(path, "ab") as stderr:
        run_with(tmp_path, subprocess.DEVNULL, stderr)
    path.chmod(0o600)
    assert b"memtui" not in own_and_others(path.read_bytes())[1]
