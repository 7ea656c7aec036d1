"""Sockets that killed processes leave behind, and those that only look like it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from memtui.sources import stale
from memtui.sources.listing import list_processes
from memtui.sources.stale import remove_stale
from tests.support.serving import require_library, serve_environment, serving

_BIND = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()"


@pytest.fixture
def runtime(sockets: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    if os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
        pytest.skip("this is not the first pid namespace: nothing is ever removed")
    monkeypatch.setenv("MEMTUI_RUNTIME_DIR", str(sockets))
    return sockets


def _left_by_a_dead_one(folder: pathlib.Path, prefix: str = "agent") -> pathlib.Path:
    """A socket that is called by its process, which is gone."""
    made = folder / "made"
    with subprocess.Popen([sys.executable, "-c", _BIND, str(made)]) as process:
        process.wait()
    return made.rename(folder / f"{prefix}-{process.pid}.sock")


@contextlib.contextmanager
def _listening(path: pathlib.Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield


def test_a_list_removes_what_killed_processes_have_left(runtime: pathlib.Path) -> None:
    left = [_left_by_a_dead_one(runtime, prefix) for prefix in ("agent", "run")]
    list_processes()
    assert not [path for path in left if path.exists()]


def test_a_daemon_removes_what_killed_processes_have_left(runtime: pathlib.Path) -> None:
    require_library()
    left = _left_by_a_dead_one(runtime)
    with serving(environment=serve_environment(runtime)):
        until = time.monotonic() + 60
        while left.exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert not left.exists()


def test_what_may_be_needed_stays(runtime: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN sockets of which one thing is otherwise than with a stale one, THEN none of them is touched."""
    living = runtime / f"agent-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(living))  # and nobody listens
    dead = _left_by_a_dead_one(runtime)
    heard = dead.with_name("heard")
    dead.rename(heard)
    with _listening(dead):  # by a process of another pid namespace
        no_socket = runtime / f"run-{dead.stem.partition('-')[2]}.sock"
        no_socket.touch()
        assert remove_stale() == 0
        assert living.exists()
        assert dead.exists()
        assert no_socket.exists()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert remove_stale() == 0
    monkeypatch.undo()
    monkeypatch.setenv("MEMTUI_RUNTIME_DIR", str(runtime))
    monkeypatch.setattr(stale, "_FIRST_NAMESPACE", "pid:[1]")
    assert remove_stale() == 0
    monkeypatch.undo()
    monkeypatch.setenv("MEMTUI_RUNTIME_DIR", str(runtime))
    monkeypatch.setattr(stale, "_LOCAL", frozenset(("nfs",)))
    assert remove_stale() == 0
    assert dead.exists()
    monkeypatch.undo()
    monkeypatch.setenv("MEMTUI_RUNTIME_DIR", str(runtime))
    assert remove_stale() == 1
    assert not dead.exists()


def test_one_of_another_pid_namespace_stays_while_its_process_lives(runtime: pathlib.Path) -> None:
    """GIVEN a living process that sees its own pid as one that nobody has here, THEN no socket of that name goes."""
    script = "import os, sys\nprint(os.getpid(), flush=True)\nsys.stdin.read()"
    unshare = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", script]
    try:
        process = subprocess.Popen(unshare, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as error:
        pytest.skip(f"no unshare: {error}")
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        if said != b"1":
            pytest.skip("no pid namespace may be made here")
        assert 1 in stale._inner_pids()
        process.stdin.close()
        process.wait()
    assert 1 not in stale._inner_pids()
