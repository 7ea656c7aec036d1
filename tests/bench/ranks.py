"""The app on a terminal of 120x40 with ranks side by side: eight real ones, and 64 whose streams were recorded."""

from __future__ import annotations

import contextlib
import json
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import memtui.examples
from memtui.wire import codec, frames, paths

from . import surroundings
from .report import Line, at_most
from .terminal import Terminal

SECONDS = 20.0
_SETTLING, _RECORDED_SECONDS = 12.0, 20.0
_GPT = pathlib.Path(memtui.examples.__file__).with_name("gpt.py")
_RANKED = surroundings.ROOT / "tests" / "programs" / "ranked.py"


def bench() -> Iterator[Line]:
    """Processor time, traffic and memory of the viewer, and what it did not take."""
    with surroundings.runtime_folder() as runtime:
        recording = runtime / "recording.json"
        with training(runtime) as pid:
            told = record(runtime, pid)
        recording.write_text(json.dumps(told))
        rate = sum(message["kind"] == "frame" for _, message in told) / _RECORDED_SECONDS
        yield Line("frames of each recorded rank", f"{rate:.1f} a second")
        for count, bar in ((8, 0.12), (64, 0.30)):
            yield from _streams(runtime, recording, count, bar)
    with surroundings.runtime_folder() as runtime, eight(runtime) as pid:
        yield from _watched("8 real ranks of DDP", runtime, pid, 0.12)


def _streams(runtime: pathlib.Path, recording: pathlib.Path, count: int, bar: float) -> Iterator[Line]:
    command = [sys.executable, str(surroundings.PROGRAMS / "streams.py"), str(recording), str(runtime), str(count)]
    environment = {**surroundings.with_virtual_gpu(runtime, agent=False), "MEMTUI_RUNTIME_DIR": str(runtime)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            yield from _watched(f"{count} recorded ranks", runtime, child.pid, bar)
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(20)
    lost = int((runtime / "lost").read_text())
    yield at_most(f"{count} recorded ranks, frames that the viewer did not take", lost, 0, "", 0)


def _watched(what: str, runtime: pathlib.Path, pid: int, bar: float) -> Iterator[Line]:
    command = [sys.executable, "-m", "memtui", "attach", "--pid", str(pid)]
    terminal = Terminal(command, {**surroundings.plain(), "MEMTUI_RUNTIME_DIR": str(runtime)})
    try:
        time.sleep(_SETTLING)
        cpu, received, begun = terminal.cpu_seconds(), terminal.received, time.perf_counter()
        time.sleep(SECONDS)
        assert terminal.process.poll() is None, "the viewer ended"
        took = time.perf_counter() - begun
        yield at_most(f"{what}, processor time at 10 Hz", (terminal.cpu_seconds() - cpu) / took, bar, "s/s", 3)
        yield Line(f"{what}, terminal traffic", f"{(terminal.received - received) / took / 1024:.2f} KB/s")
        yield Line(f"{what}, resident memory", f"{terminal.rss_bytes() / 1e6:.1f} MB")
    finally:
        terminal.close()


@contextlib.contextmanager
def training(runtime: pathlib.Path) -> Iterator[int]:
    command = [sys.executable, str(_GPT), "--pace", "0.9"]
    with subprocess.Popen(command, env=surroundings.with_virtual_gpu(runtime), stdout=subprocess.DEVNULL) as child:
        try:
            path = runtime / paths.agent_socket_name(child.pid)
            while not path.exists():
                assert child.poll() is None, "the training ended"
                time.sleep(0.05)
            time.sleep(8)  # the first steps
            yield child.pid
        finally:
            child.kill()


def record(runtime: pathlib.Path, pid: int) -> list[tuple[int, dict[str, Any]]]:
    """What an agent says in a while, and when."""
    told: list[tuple[int, dict[str, Any]]] = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(runtime / paths.agent_socket_name(pid)))
        connection.sendall(codec.encode(frames.Request("hello", history=False)))
        begun, splitter = time.monotonic_ns(), codec.Splitter()
        while time.monotonic_ns() - begun < _RECORDED_SECONDS * 1e9:
            for body in splitter.feed(connection.recv(1 << 16)):
                told.append((time.monotonic_ns() - begun, json.loads(body)))
    return told


@contextlib.contextmanager
def eight(runtime: pathlib.Path) -> Iterator[int]:
    from memtui.agent import environment as with_agent
    from memtui.virtual_gpu import environment, profile_of

    base = environment(profile_of(memory="8GiB", count=8, context="300MiB"), base=surroundings.plain())
    base["MEMTUI_RUNTIME_DIR"] = str(runtime)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "8", "--master-port", "29631"]
    command += [str(_RANKED), "--seconds", "300", "--pause", "0.4", "--large", "5"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=with_agent(base), stdout=quiet, stderr=quiet) as child:
        try:
            while len(list(runtime.glob("agent-*.sock"))) < 8:
                assert child.poll() is None, "the launcher ended"
                time.sleep(0.2)
            time.sleep(8)
            yield child.pid
        finally:
            child.terminate()
            child.wait(30)
