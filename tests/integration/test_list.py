"""`memtui ps`: what can be watched comes first, and of the rest it says why not."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.programs import require_torch
from tests.support.supervised import Programs, wait_for_end, wait_until

FOLDER = pathlib.Path(__file__).resolve().parents[2]
_READY = "print('ready', flush=True)\ntime.sleep(60)\n"
#: PyTorch is loaded, for all that is to be seen from outside, and nothing of memtui is.
_UNWATCHED = "import time, torch\n" + _READY
_WATCHED = "import time, torch, memtui\nmemtui.start()\n" + _READY
#: What a loader's worker is: a child with PyTorch that does not train.
_PARENT = (
    "import os, time, torch, memtui\nmemtui.start()\nself = os.getpid()\nworker = os.fork()\n"
    "while not worker:\n    time.sleep(0.1)\n    os.getppid() == self or os._exit(0)\n"
    "print(worker, flush=True)\ntime.sleep(60)\n"
)


@pytest.fixture
def env(sockets: pathlib.Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MEMTUI_", "XDG_"))}
    return {**inherited, "MEMTUI_RUNTIME_DIR": str(sockets), "PYTHONPATH": str(FOLDER), "CUDA_VISIBLE_DEVICES": ""}


class Started:
    """Processes, ready; gone with the test."""

    def __init__(self, env: dict[str, str]) -> None:
        self._env = env
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> tuple[int, str]:
        """(pid, the first line it prints) of a Python."""
        process = subprocess.Popen(
            [sys.executable, *words],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._processes.append(process)
        assert process.stdout is not None
        return process.pid, process.stdout.readline().strip()

    def end(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGCONT)
            # `memtui run` passes it on to its program.
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.communicate(timeout=60)


@pytest.fixture
def started(env: dict[str, str]) -> Iterator[Started]:
    found = Started(env)
    yield found
    found.end()


def rows(env: dict[str, str], **more: str) -> list[dict[str, Any]]:
    """The lines of `memtui ps`, in order, by the columns' names."""
    done = subprocess.run(
        [sys.executable, "-m", "memtui", "ps"],
        env={**env, **more},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    heads, *lines = (re.split(r" {2,}", line.strip()) for line in done.stdout.splitlines())
    assert heads == ["pid", "user", "device", "memory", "age", "watch", "command"]
    return [dict(zip(heads, line)) for line in lines]


def test_what_can_be_watched_comes_first(
    env: dict[str, str], started: Started, programs: Programs, tmp_path: pathlib.Path
) -> None:
    """An agent, a program of `memtui run` without PyTorch, one that has ended; then those without, and the reason."""
    require_torch()
    (tmp_path / "plain.py").write_text("import time\n" + _READY)
    ended = programs.python("pass")
    wait_for_end(ended)
    without, _ = started.start("-c", _UNWATCHED)
    halted, _ = started.start("-c", _UNWATCHED)
    os.kill(halted, signal.SIGSTOP)
    parent, worker = started.start("-c", _PARENT)
    started.start("-m", "memtui", "run", "--quiet", str(tmp_path / "plain.py"))

    found = rows(env)

    told = {row["pid"]: row["watch"] for row in found}
    plain = next(row["pid"] for row in found if str(tmp_path / "plain.py") in row["command"])
    assert told[str(parent)] == "yes"
    assert told[plain] == "yes: no PyTorch yet"
    assert told[str(ended.pid)] == "yes: ended"
    assert told[worker] == f"no: part of {parent}"
    assert told[str(without)] == "yes: gets the agent"
    assert told[str(halted)] == f"no: stopped; kill -CONT {halted}"
    order = [row["watch"].partition(":")[0] for row in found]
    assert order == sorted(order, reverse=True)
    assert [row["watch"] for row in found if row["watch"].startswith("yes")][-1] == "yes: ended"


def test_one_that_is_stopped(env: dict[str, str], started: Started, sockets: pathlib.Path) -> None:
    """Its agent cannot answer; the reason says what lets it."""
    require_torch()
    pid, _ = started.start("-c", _WATCHED)
    wait_until((sockets / f"agent-{pid}.sock").exists, "the agent")
    os.kill(pid, signal.SIGSTOP)
    wait_until(
        lambda: pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "the process's stop"
    )

    assert {row["pid"]: row["watch"] for row in rows(env)}[str(pid)] == f"no: stopped; kill -CONT {pid}"


def test_in_ascii(env: dict[str, str], started: Started) -> None:
    """Where standard output has no dash, it has a hyphen, and no traceback."""
    require_torch()
    pid, _ = started.start("-c", _UNWATCHED)

    found = rows(env, PYTHONIOENCODING="ascii")

    assert next(row["device"] for row in found if row["pid"] == str(pid)) == "-"


def test_a_socket_of_another_process(env: dict[str, str], started: Started, sockets: pathlib.Path) -> None:
    """Named after a pid of a container that shares the folder: listed is who listens, and nobody is a part of it."""
    require_torch()
    other, _ = started.start("-c", _WATCHED)
    wait_until((sockets / f"agent-{other}.sock").exists, "the agent")
    os.link(sockets / f"agent-{other}.sock", sockets / "agent-1.sock")
    plain, _ = started.start("-c", _UNWATCHED)

    told = {row["pid"]: row["watch"] for row in rows(env)}
    attach = [sys.executable, "-m", "memtui", "attach", "--headless", "--pid", "1"]
    refused = subprocess.run(attach, env=env, capture_output=True, text=True, timeout=60, check=False)

    assert told[str(other)] == "yes"
    assert told[str(plain)] == "yes: gets the agent"
    assert "1" not in told
    assert refused.returncode == 1
    assert "memtui: " in refused.stderr
