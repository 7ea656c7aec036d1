"""Getting into a training: it is watched from there on, its numbers are the same, and nothing is left of it."""

from __future__ import annotations

import ast
import os
import pathlib
import select
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest

from memtui.inject.attach import attach
from memtui.inject.preflight import GDB, PTRACE, check
from memtui.wire.frames import Frame, Hello, Model
from tests.support import programs
from tests.support.targets import TRAINING, Viewer, ask, attached, target, unload

BUSY = pathlib.Path(__file__).resolve().parent.parent / "bench" / "programs" / "injected.py"
THREE = """
import threading, time, torch
torch.set_num_threads(1)
def train(optimizes):
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(20)))
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    while True:
        model(torch.ones(4, 32)).sum().backward()
        if optimizes:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        time.sleep(0.0005)
for _ in range(2):
    threading.Thread(target=train, args=(False,), daemon=True).start()
print("ready", flush=True)
train(True)
"""
INTERRUPTED = """
import signal, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
inside = False
def interrupted(*_):
    if inside:
        raise KeyboardInterrupt
    print("interrupted", flush=True)
signal.signal(signal.SIGINT, interrupted)
print("ready", flush=True)
while True:
    try:
        inside = True
        while True:
            model(torch.ones(4, 64)).sum().backward()
            optimizer.step()
    except KeyboardInterrupt:
        inside = False
        torch.set_grad_enabled(True)  # torch itself leaves it off where it is interrupted in its optimizer
        print("interrupted", flush=True)
"""
#: While the main thread is in a long call, with a call queued for it, another one forks the process.
FORKING = """
import ctypes, os, sys, threading, time, torch
def fork():
    time.sleep(1)
    if not os.fork():
        for _ in range(100):
            time.sleep(0.001)
        print("child", sorted(name for name in sys.modules if name.startswith(("memtui", "_memtui"))), flush=True)
        os._exit(0)
print("ready", flush=True)
threading.Thread(target=fork, daemon=True).start()
ctypes.CDLL(None).usleep(2_000_000)
while True:
    time.sleep(0.01)
"""


def test_a_training_is_watched_from_the_next_boundary_on(tmp_path: pathlib.Path) -> None:
    """Roots and optimizers are found by the search; steps, phases and categories go on from there."""
    programs.require_torch()
    with target(TRAINING, tmp_path) as process:
        seen: list[str] = []
        outcome = attached(process.pid, progress=lambda progress: seen.append(progress.stage))
        assert outcome.way == PTRACE
        assert outcome.socket == tmp_path / f"agent-{process.pid}.sock"
        assert outcome.paused_ns is not None
        assert (seen[0], seen[1], seen[-1]) == ("trying", "queued", "started")
        with Viewer(outcome.socket) as viewer:
            hello = viewer.until(Hello)
            assert hello.pid == process.pid
            model = viewer.until(Model)
            assert model.roots == ("Sequential",)
            assert [each.name for each in model.optimizers] == ["Adam"]
            frame = viewer.until(Frame, lambda frame: frame.step > 20 and frame.devices[0].classification)
            assert frame.devices[0].categories()["parameters"] == 4 * 2 * (64 * 64 + 64)
        again = attach(process.pid)
        assert (again.status, again.already, again.socket) == ("attached", True, outcome.socket)


def test_nothing_is_left_of_it_and_it_starts_afresh(tmp_path: pathlib.Path) -> None:
    """Modules, hooks, thread, socket, finder: as before; and again after another time."""
    programs.require_torch()
    with target(TRAINING, tmp_path) as process:
        before = ask(process)
        assert ast.literal_eval(before.replace("dict_keys([])", "set()"))[1] == []
        for _ in range(3):
            outcome = attached(process.pid)
            assert not outcome.already
            during = ask(process)
            assert "memtui-agent" in during
            assert "_memtui.agent.agent" in during
            assert outcome.socket is not None
            unload(outcome.socket)
            programs.wait_for(lambda: ask(process) == before, 20, "what was there before")
            assert not list(tmp_path.iterdir())


def test_losses_are_the_same_bit_for_bit(tmp_path: pathlib.Path) -> None:
    """A busy training: threads, children, signals every 2 ms, backward passes elsewhere, and waits in system calls."""
    programs.require_torch()
    environment = programs.plain_environment() | {"CUDA_VISIBLE_DEVICES": "", "MEMTUI_RUNTIME_DIR": str(tmp_path)}

    def start(folder: pathlib.Path, steps: int) -> subprocess.Popen[str]:
        folder.mkdir()
        command = [sys.executable, str(BUSY), "cpu", str(folder), str(steps)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def losses(folder: pathlib.Path) -> list[float]:
        return [loss for loss, _ in struct.iter_unpack("<dq", (folder / "steps").read_bytes())]

    with start(tmp_path / "attached", 0) as process:
        programs.wait_for((tmp_path / "attached" / "steps").exists)
        for _ in range(10):
            outcome = attached(process.pid)
            assert outcome.socket is not None
            unload(outcome.socket)
        (tmp_path / "attached" / "stop").touch()
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
    found = losses(tmp_path / "attached")
    with start(tmp_path / "alone", len(found)) as alone:
        assert alone.wait(120) == 0
    assert losses(tmp_path / "alone") == found


def test_several_threads_that_train(tmp_path: pathlib.Path) -> None:
    """The one that optimizes is followed, and gradients, which another may be writing, are not read."""
    programs.require_torch()
    with target(THREE, tmp_path) as process:
        for _ in range(3):
            outcome = attached(process.pid)
            assert outcome.socket is not None
            with Viewer(outcome.socket) as viewer:
                frame = viewer.until(Frame, lambda frame: frame.step > 50 and frame.devices[0].classification)
                assert not frame.devices[0].categories().get("gradients")
            with Viewer(outcome.socket) as viewer:
                assert any("several threads" in notice for notice in viewer.until(Hello).notices)
            unload(outcome.socket)
        assert process.poll() is None


def test_the_tool_may_be_killed_at_any_moment(tmp_path: pathlib.Path) -> None:
    """The thread that it holds or has sent away goes on, and the next tool gets in."""
    programs.require_torch()
    root = pathlib.Path(__file__).resolve().parents[2]
    code = "import sys; from memtui.inject.attach import attach; print(1, flush=True); attach(int(sys.argv[1]))"
    with target(TRAINING, tmp_path) as process:
        for number in range(12):
            command = [sys.executable, "-c", code, str(process.pid)]
            environment = {**os.environ, "PYTHONPATH": str(root)}
            with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as tool:
                assert tool.stdout is not None
                tool.stdout.readline()
                time.sleep(0.004 * number)
                tool.kill()
            assert ask(process)
            outcome = attached(process.pid)
            assert outcome.socket is not None
            unload(outcome.socket)
        assert process.poll() is None


def test_gdb_is_the_last_way(tmp_path: pathlib.Path) -> None:
    """It queues the same call."""
    programs.require_torch()
    with target(TRAINING, tmp_path) as process:
        if GDB not in check(process.pid).ways:
            pytest.skip("gdb is not installed")
        outcome = attached(process.pid, ways=(GDB,))
        assert outcome.way == GDB
        with Viewer(outcome.socket) as viewer:  # type: ignore[arg-type]
            viewer.until(Frame, lambda frame: frame.step > 5)


def test_an_interrupt_is_the_programs(tmp_path: pathlib.Path) -> None:
    """GIVEN Ctrl-C reaches the program while it is being attached to, THEN it gets it as ever."""
    programs.require_torch()
    with target(INTERRUPTED, tmp_path) as process:
        sent, lost = 0, []
        stop = threading.Event()

        def interrupt() -> None:
            nonlocal sent
            while not stop.is_set():
                os.kill(process.pid, signal.SIGINT)  # `send_signal` would wait for it, and take the tracer's news
                assert process.stdout is not None
                if not select.select([process.stdout], [], [], 20)[0]:
                    lost.append("an interrupt")
                    return
                if process.stdout.readline() == "interrupted\n":
                    sent += 1
                time.sleep(0.01)

        other = threading.Thread(target=interrupt)
        other.start()
        try:
            for _ in range(5):
                # Where the interrupt meets the few instructions that start the agent, it is not started.
                outcome = attach(process.pid, timeout=5)
                if outcome.socket is not None:
                    unload(outcome.socket)
        finally:
            stop.set()
            other.join()
        assert not lost
        assert sent > 20
        assert process.poll() is None


def test_a_forked_child_has_no_agent_of_a_queued_call(tmp_path: pathlib.Path) -> None:
    """The child has its parent's queue of calls, and they are not its own."""
    programs.require_torch()
    with target(FORKING, tmp_path) as process:
        outcome = attached(process.pid)
        assert outcome.socket is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "child []\n"
        with Viewer(outcome.socket) as viewer:
            viewer.until(Frame)
