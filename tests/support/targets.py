"""Programs that an agent is to get into, and what is asked of it there."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from memtui.inject.attach import Outcome, attach
from memtui.wire import codec, frames
from tests.support import programs

STAND_IN = programs.PROGRAMS / "stand_in"
#: A program that has a stand-in for PyTorch; `NEXT` is what it does.
IDLE = f"""
import sys, threading, time
sys.path.insert(0, {str(STAND_IN)!r})
import torch
def rest():
    while True:
        time.sleep(0.01)
threading.Thread(target=rest, daemon=True).start()
print("ready", flush=True)
"""
WAIT = "while True: time.sleep(0.002)\n"
#: A training on the CPU that prints what there is of an agent when it reads a line.
TRAINING = """
import select, sys, threading, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
optimizer = torch.optim.Adam(model.parameters())
def state():
    from torch.nn.modules import module
    from torch.optim import optimizer as optimizers
    hooks = [
        len(each)
        for each in (
            module._global_parameter_registration_hooks,
            module._global_module_registration_hooks,
            optimizers._global_optimizer_pre_hooks,
            optimizers._global_optimizer_post_hooks,
        )
    ]
    names = sorted(name for name in sys.modules if name.startswith(("memtui", "_memtui")))
    threads = sorted(thread.name for thread in threading.enumerate())
    finders = [type(finder).__name__ for finder in sys.meta_path if "memtui" in type(finder).__module__]
    kinds = type(torch.autograd._engine_run_backward).__name__, type(model._forward_pre_hooks).__name__
    queued = len(torch.cuda._queued_calls), len(torch.xpu._queued_calls) if hasattr(torch, "xpu") else 0
    return hooks, names, threads, finders, kinds, vars().keys() & {"_thread", "builtins"}, queued
print("ready", flush=True)
while True:
    loss = model(torch.randn(8, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if select.select([sys.stdin], [], [], 0)[0]:
        if not sys.stdin.readline():
            break
        print(state(), flush=True)
"""


def require_ptrace() -> None:
    """Skips where this process may trace no other."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("the way in is for x86-64 Linux")
    if os.geteuid() != 0 and os.path.exists("/proc/sys/kernel/yama/ptrace_scope"):
        pytest.skip("yama may forbid tracing")


@contextlib.contextmanager
def target(
    code: str,
    runtime: pathlib.Path,
    *,
    python: str = sys.executable,
    before: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
    **options: Any,
) -> Iterator[subprocess.Popen[str]]:
    """A program that has said that it is ready, with sockets in `runtime`; killed at the end."""
    require_ptrace()
    more = {"CUDA_VISIBLE_DEVICES": ""} if environment is None else environment
    process = subprocess.Popen(
        [*before, python, "-c", code],
        env={**programs.plain_environment(), **more, "MEMTUI_RUNTIME_DIR": str(runtime)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def ask(process: subprocess.Popen[str]) -> str:
    """What a program answers to a line."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def attached(pid: int, **options: Any) -> Outcome:
    """An attachment that has succeeded."""
    outcome = attach(pid, **options)
    assert outcome.status == "attached", outcome
    assert outcome.socket is not None
    return outcome


class Viewer:
    """Reads from an agent's socket."""

    def __init__(self, path: pathlib.Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(os.fspath(path))
        self.ask("hello")
        self._splitter = codec.Splitter()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, name: str) -> None:
        """Sends a request."""
        self.socket.sendall(codec.encode(frames.Request(name, history=False)))

    def messages(self) -> Iterator[Any]:
        """Messages until the agent closes the connection."""
        while True:
            data = self.socket.recv(1 << 16)
            if not data:
                return
            for body in self._splitter.feed(data):
                yield codec.decode(body)

    def until(self, kind: type, wanted: Any = lambda _message: True) -> Any:
        """The first message of a kind for which `wanted` holds."""
        for message in self.messages():
            if isinstance(message, kind) and wanted(message):
                return message
        raise AssertionError(f"the agent closed the connection before a {kind.__name__}")


def unload(path: pathlib.Path) -> None:
    """Takes an agent out and waits until its socket is closed."""
    with Viewer(path) as viewer:
        viewer.until(frames.Frame)
        viewer.ask("unload")
        for _ in viewer.messages():
            pass
