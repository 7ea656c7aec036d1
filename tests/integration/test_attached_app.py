"""The app on a program of `memtui run`: it is left with the program's output and status, and why it failed."""

from __future__ import annotations

import asyncio
import os
import pathlib
import sys
from typing import Optional

import pytest

from memtui.sources.program import TerminalSize
from tests.support.supervised import Programs, alive, wait_for_end, wait_until, watch

FOLDER = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def env(sockets: pathlib.Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MEMTUI_", "XDG_"))}
    found = {**inherited, "MEMTUI_RUNTIME_DIR": str(sockets), "PYTHONPATH": str(FOLDER)}
    return {**found, "TERM": "xterm-256color"}


async def left_with(
    viewer: int, status: int, end: Optional[pathlib.Path] = None, output: bytes = b"epoch 9"
) -> list[bytes]:
    """Leaves the app once the program has ended, which the file `end` tells it to: its output and status are there.

    The lines of the terminal after that.
    """
    client, heard = await watch(viewer)
    if end is not None:
        await heard.until(lambda heard: b"quit" in heard.output)
        end.touch()
    await heard.until(lambda heard: b"exited with status %d" % status in heard.output)
    client.send_input(b"q")
    await heard.until(lambda heard: heard.status is not None)
    assert heard.status is not None
    assert heard.status.code == status
    left = heard.output.rpartition(b"\x1b[?1049l")[2]
    assert output in left
    return left.replace(b"\r", b"\n").splitlines()


def test_a_program_that_ended_meanwhile_in_the_app(env: dict[str, str], programs: Programs) -> None:
    """The same, when the app is left."""
    start = programs.python("import sys; print('epoch 9'); sys.exit(3)")
    wait_for_end(start)
    size = TerminalSize(100, 30)
    viewer = programs.start(
        sys.executable, "-m", "memtui", "attach", "--pid", str(start.pid), env=env, cwd=str(FOLDER), size=size
    )

    assert b"memtui: exited with status 3" in asyncio.run(left_with(viewer.pid, 3))
    wait_until(lambda: not alive(start.supervisor_pid), "the supervisor's end")


def test_a_program_that_ends_while_attached_in_the_app(
    env: dict[str, str], programs: Programs, tmp_path: pathlib.Path
) -> None:
    """Leaving the app then is like leaving that of `memtui run`: the output, and the status."""
    end = tmp_path / "end"
    code = (
        f"import os, sys, time\nprint('epoch 9')\nwhile not os.path.exists({str(end)!r}): time.sleep(0.05)\nsys.exit(7)"
    )
    start = programs.python(code)
    viewer = programs.start(
        *(sys.executable, "-m", "memtui", "attach", "--pid", str(start.pid)),
        **{"env": env, "cwd": str(FOLDER), "size": TerminalSize(100, 30)},
    )

    asyncio.run(left_with(viewer.pid, 7, end))
    wait_until(lambda: not alive(start.supervisor_pid), "the supervisor's end")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import nothing_of_this_name", b"ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("print('x'", b"SyntaxError: '(' was never closed"),
        ("print('half a line', end='', flush=True)\nraise ValueError('no')", b"ValueError: no"),
    ],
)
def test_a_program_that_fails_in_the_app(
    script: str, reason: bytes, env: dict[str, str], programs: Programs, tmp_path: pathlib.Path
) -> None:
    """GIVEN an exception, THEN after the app its traceback is there as ever, and a line of ours that names it."""
    (tmp_path / "train.py").write_text(script)
    viewer = programs.start(
        *(sys.executable, "-m", "memtui", "run", "train.py"),
        **{"env": env, "cwd": str(tmp_path), "size": TerminalSize(100, 30)},
    )

    lines = asyncio.run(left_with(viewer.pid, 1, output=reason))

    assert reason in lines
    assert lines.count(b"memtui: exited with status 1: " + reason) == 1
    assert not [line for line in lines if b"memtui/commands" in line]
