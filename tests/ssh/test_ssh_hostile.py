"""A far end that means no good is dropped with a line: no harm, no memory without end, nothing unescaped."""

from __future__ import annotations

import os
import pathlib
import resource
import subprocess
import sys

import pytest

from tests.support import programs, sshd

_STAND_IN = programs.PROGRAMS / "hostile_ssh.py"
_MOST_BYTES = 600 << 20


def run(how: str, tmp_path: pathlib.Path, *words: str) -> tuple[int, str, str]:
    """Status, output and errors of a viewer; it could not have taken more memory than it may."""
    env = {**programs.plain_environment(), "MEMTUI_SSH": f"{sys.executable} {_STAND_IN} {how}"}
    env |= {"PYTHONPATH": str(sshd.FOLDER), "MEMTUI_RUNTIME_DIR": str(tmp_path)}

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))

    done = subprocess.run(
        sshd.attach_command("ssh://box/7", "--headless", *words),
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
        start_new_session=True,
        preexec_fn=limited,
    )
    for stream in (done.stdout, done.stderr):
        text = stream.decode()
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
        assert "Traceback" not in text
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("endless", "bytes came and no relay: dropped"),
        ("words", "is not well"),
        ("noise", "evil"),
        ("bomb", "what answers there is no memtui relay"),
        ("garbage", "what answers there is no memtui relay"),
        ("objects", "what answers there is no memtui relay"),
        ("deep", "what answers there is no memtui relay"),
    ],
)
def test_it_is_dropped_before_anything_is_shown(how: str, said: str, tmp_path: pathlib.Path) -> None:
    status, output, errors = run(how, tmp_path, "--frames", "2")
    assert (status, output) == (1, "")
    assert said in errors.splitlines()[-1]
    assert errors.splitlines()[-1].startswith("memtui: box: ")


@pytest.mark.parametrize("how", ["agent", "instants", "flood"])
def test_an_agent_that_is_none(how: str, tmp_path: pathlib.Path) -> None:
    """Lines go on to be printed, without figures, and nothing else happens."""
    status, output, errors = run(how, tmp_path, "--frames", "3")
    assert status == 0, errors
    assert output.count("\n") >= 3


def test_what_the_link_itself_may_hold_is_bounded(tmp_path: pathlib.Path) -> None:
    """A host file of any size, too."""
    (tmp_path / "hosts").write_text("".join(f"h{number}\n" for number in range(5000)))
    env = {**programs.plain_environment(), "PYTHONPATH": str(sshd.FOLDER)}
    seen = sshd.attach(env, "--hosts", os.fspath(tmp_path / "hosts"), "--headless")
    assert (seen.returncode, seen.stderr) == (2, "memtui: more than 4,096 hosts\n")
