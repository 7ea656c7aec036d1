"""Runs the test programs, with the agent and without, and talks to agents."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from memtui import agent
from memtui.wire import codec, frames, paths
from tests.support import virtual_gpu

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "programs"
#: The program that was started itself gets its own pid in this variable, as the supervisor gives it.
_DIRECT = ["/bin/sh", "-c", 'MEMTUI_DIRECT=$$ exec "$@"', "sh"]


def require_torch() -> None:
    """Skips where there is no torch at all."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")


def plain_environment() -> dict[str, str]:
    """This environment without what the test run itself may have set."""
    dropped = ("MEMTUI_DIRECT", "PYTHONPATH", "MEMTUI_DEBUG")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    # Several threads that wait for each other by spinning bring a small machine to a halt.
    return kept | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def host_environment(runtime: pathlib.Path) -> dict[str, str]:
    """An environment with the agent and without a GPU; skips where there is no torch."""
    require_torch()
    return with_agent(plain_environment() | {"CUDA_VISIBLE_DEVICES": ""}, runtime)


def virtual_environment_with_agent(runtime: pathlib.Path, **profile: object) -> dict[str, str]:
    """An environment with the agent and virtual GPUs; skips where there can be none."""
    return with_agent(plain_environment() | virtual_gpu.virtual_environment(**profile), runtime)


def with_agent(base: dict[str, str], runtime: pathlib.Path) -> dict[str, str]:
    """An environment under which programs load the agent, with sockets in `runtime`."""
    return {**agent.environment(base), "MEMTUI_RUNTIME_DIR": str(runtime)}


def command(*arguments: str, direct: bool = True) -> list[str]:
    """What starts this Python with `arguments`; `direct` as the program that memtui itself started."""
    return [*(_DIRECT if direct else []), sys.executable, *arguments]


@contextlib.contextmanager
def started(
    *arguments: str, environment: dict[str, str], direct: bool = True, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is killed at the end if it is still there.

    Its pipes have no buffer here: `communicate` would leave out what a `readline` before it has taken in.
    """
    options.setdefault("bufsize", 0)
    process = subprocess.Popen(command(*arguments, direct=direct), env=environment, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def wait_for(condition: Any, seconds: float = 60.0, what: str = "") -> Any:
    """The first true value of `condition()`; fails after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what or condition}")


class AgentConnection:
    """A viewer reduced to its socket."""

    def __init__(self, runtime: pathlib.Path, pid: int, *, history: bool = True, protocol: int = frames.PROTOCOL):
        path = runtime / paths.agent_socket_name(pid)
        wait_for(path.exists, what=f"the agent's socket {path}")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.socket.sendall(codec.encode(frames.Request("hello", protocol=protocol, history=history)))
        self._splitter = codec.Splitter()

    def __enter__(self) -> AgentConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, kind: str) -> None:
        """Sends a request; to a program that has just ended it is lost, and `messages` ends."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(codec.encode(frames.Request(kind)))

    def messages(self) -> Iterator[Any]:
        """Messages until the agent closes the connection."""
        data = b""  # what an earlier caller left in the splitter comes first
        while True:
            for body in self._splitter.feed(data):
                yield codec.decode(body)
            try:
                data = self.socket.recv(65_536)
            except ConnectionResetError:
                return
            if not data:
                return

    def until(self, wanted: Any) -> Any:
        """The first message for which `wanted(message)` holds."""
        for message in self.messages():
            if wanted(message):
                return message
        raise AssertionError("the agent closed the connection before")
