"""Other Pythons, other users, other namespaces; calls that have to wait, and that are called off."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

import pytest

from memtui.inject.attach import Progress, attach
from memtui.inject.process import read_facts
from memtui.inject.reach import find_agent_of
from memtui.wire.frames import Frame, Hello
from tests.support import programs
from tests.support.targets import IDLE, STAND_IN, WAIT, Viewer, attached, target, unload

_VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def python_of(version: str) -> str:
    """Where several Pythons are kept beside each other by pyenv, its variable picks the one."""
    command = [f"python{version}", "-c", "import sys; print(sys.executable)"]
    try:
        found = subprocess.run(
            command, env={**os.environ, "PYENV_VERSION": version}, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"there is no Python {version} here")
    return found.stdout.strip()


def watch_and_unload(path: pathlib.Path, version: str = "") -> None:
    with Viewer(path) as viewer:
        assert viewer.until(Hello).python.startswith(version)
        viewer.until(Frame, lambda frame: frame.sequence > 3)
    unload(path)


def test_pythons_own_way_in(tmp_path: pathlib.Path) -> None:
    """`sys.remote_exec`, which leaves no file."""
    with target(IDLE + WAIT, tmp_path, python=python_of("3.14")) as process:
        files = set(os.listdir("/tmp"))
        for _ in range(3):
            outcome = attached(process.pid, ways=("remote_exec",))
            assert outcome.socket is not None
            watch_and_unload(outcome.socket, "3.14")
            programs.wait_for(lambda: not list(tmp_path.iterdir()))
        assert not {name for name in set(os.listdir("/tmp")) - files if name.startswith("memtui-")}


@pytest.mark.parametrize("version", _VERSIONS)
def test_every_python(version: str, tmp_path: pathlib.Path) -> None:
    """With a stand-in for PyTorch: that the agent is loaded, serves and goes."""
    with target(IDLE + WAIT, tmp_path, python=python_of(version)) as process:
        for _ in range(3):
            outcome = attached(process.pid)
            assert outcome.socket is not None
            watch_and_unload(outcome.socket, version)
            programs.wait_for(lambda: not list(tmp_path.iterdir()))
        assert process.poll() is None


#: One thread of Python, and one that only the system knows: the call is queued through that one.
_LONE = f"""
import ctypes, os, sys, time
sys.path.insert(0, {str(STAND_IN)!r})
import torch
libc = ctypes.CDLL(None)
libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None)
other = max(map(int, os.listdir("/proc/self/task")))
while not open(f"/proc/self/task/{{other}}/syscall").read().startswith("34 "): time.sleep(0.001)
print("ready", flush=True)
number = 0
while True: number += 1
"""


@pytest.mark.parametrize("version", _VERSIONS[:-1])
def test_a_lone_thread_of_plain_python(version: str, tmp_path: pathlib.Path) -> None:
    """It never gives Python's lock away, and looks at its queue of calls all the same."""
    with target(_LONE, tmp_path, python=python_of(version)) as process:
        told: list[Progress] = []
        outcome = attached(process.pid, progress=told.append)
        assert outcome.socket is not None
        assert outcome.thread != process.pid
        # From 3.13 on the main thread is told whoever queues a call.
        assert version == "3.13" or "nudged" in [progress.stage for progress in told]
        watch_and_unload(outcome.socket, version)
        assert process.poll() is None


def test_the_systems_own_python(tmp_path: pathlib.Path) -> None:
    """Its interpreter has no libpython."""
    if not os.path.exists("/usr/bin/python3"):
        pytest.skip("there is none")
    with target(IDLE + WAIT, tmp_path, python="/usr/bin/python3") as process:
        facts = read_facts(process.pid)
        assert facts is not None
        assert not facts.shared_python
        outcome = attached(process.pid)
        assert outcome.socket is not None
        watch_and_unload(outcome.socket)


def test_a_call_waits_for_the_main_thread(tmp_path: pathlib.Path) -> None:
    """It is told what that is busy with; the agent starts when it comes back."""
    with target(IDLE + "time.sleep(2.5)\n" + WAIT, tmp_path) as process:
        told: list[Progress] = []
        outcome = attached(process.pid, progress=told.append)
        waiting = [progress for progress in told if progress.stage == "waiting"]
        assert waiting
        assert waiting[0].inside is not None
        assert waiting[0].inside.system_call == "clock_nanosleep"
        assert "until the main thread returns to Python; it is sleeping" in waiting[0].text
        assert outcome.waited_ns is not None
        assert outcome.waited_ns > 1_000_000_000


def test_a_call_that_waits_is_called_off(tmp_path: pathlib.Path) -> None:
    """By the user, or when the time is over: nothing starts afterwards, and another attachment works."""
    with target(IDLE + "time.sleep(3)\n" + WAIT, tmp_path) as process:
        cancel = threading.Event()
        threading.Timer(0.6, cancel.set).start()
        outcome = attach(process.pid, cancel=cancel)
        assert outcome.status == "cancelled"
        assert outcome.text.endswith("it is sleeping; nothing was started") or "nothing was started" in outcome.text
        assert attach(process.pid, timeout=0.3).status == "cancelled"
        time.sleep(3)
        assert not list(tmp_path.iterdir())
        assert find_agent_of(process.pid) is None
        assert not attached(process.pid).already


def test_a_call_may_be_left_queued(tmp_path: pathlib.Path) -> None:
    with target(IDLE + "time.sleep(2)\n" + WAIT, tmp_path) as process:
        outcome = attach(process.pid, timeout=0.5, keep_queued=True)
        assert outcome.status == "queued"
        programs.wait_for(lambda: find_agent_of(process.pid), 10, "its agent")
        assert attach(process.pid).already


def test_two_tools_take_turns(tmp_path: pathlib.Path) -> None:
    with target(IDLE + "time.sleep(1.5)\n" + WAIT, tmp_path) as process:
        first: list[str] = []
        thread = threading.Thread(target=lambda: first.append(attach(process.pid).status))
        thread.start()
        time.sleep(0.5)
        tired = threading.Event()
        tired.set()
        assert attach(process.pid, cancel=tired).status == "cancelled"  # at once
        assert attach(process.pid).already  # after the first
        thread.join()
        assert first == ["attached"]


@pytest.mark.parametrize("module", ["zlib", "ctypes"])
def test_a_python_that_lacks_a_module(module: str, tmp_path: pathlib.Path) -> None:
    """The tool is told, and does not wait for ever; the program does not meet the error."""
    code = IDLE.replace("print(", f"sys.modules[{module!r}] = None; print(")
    with target(code + WAIT, tmp_path, stderr=subprocess.PIPE) as process:
        outcome = attach(process.pid)
        assert outcome.status == "failed"
        assert "the agent could not be loaded: ModuleNotFoundError" in outcome.text
        assert process.poll() is None
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_process_that_ends_meanwhile(tmp_path: pathlib.Path) -> None:
    with target(IDLE + "time.sleep(0.7)\n", tmp_path) as process:
        threading.Thread(target=lambda: (time.sleep(0.4), process.kill()), daemon=True).start()
        assert attach(process.pid).status in {"failed", "attached"}


def test_root_and_the_process_of_another_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, 4242, 4242)
        options = {"user": 4242, "group": 4242, "extra_groups": [], "cwd": "/"}
        with target(IDLE + WAIT, pathlib.Path(folder), python="/usr/bin/python3", **options) as process:
            outcome = attached(process.pid)
            assert outcome.socket == pathlib.Path(folder) / f"agent-{process.pid}.sock"
            assert outcome.socket.stat().st_uid == 4242
            assert find_agent_of(process.pid) == outcome.socket
            watch_and_unload(outcome.socket)


@pytest.mark.parametrize("user", [(), ("-U", "-r")], ids=["root", "user"])
def test_in_other_namespaces(user: tuple[str, ...]) -> None:
    """Mounts, pids, users: its socket is reached through its own root."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    runtime = pathlib.Path("/run")
    shell = ("/bin/sh", "-c", 'mount -t tmpfs -o mode=700 none /run && exec "$@"', "sh")
    before = ("unshare", *user, "-m", "-p", "-f", "--mount-proc", *shell)
    with target(IDLE + WAIT, runtime, python="/usr/bin/python3", before=before) as parent:
        children = pathlib.Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        pid = int(children[0])
        facts = read_facts(pid)
        assert facts is not None
        assert facts.nested_files
        assert facts.inner_pid == 1
        try:
            outcome = attached(pid)
            assert outcome.socket is not None
            assert outcome.socket.parts[1:] == ("proc", str(pid), "root", "run", "agent-1.sock")
            assert find_agent_of(pid) == outcome.socket
            watch_and_unload(outcome.socket)
            assert not attached(pid).already
        finally:
            subprocess.run(["kill", "-9", str(pid)], check=False)
