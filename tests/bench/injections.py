"""Getting into a busy training and out again, many times; and the tool being killed while it does.

`MEMTUI_BENCH_INJECTIONS` is how many times on the CPU (1,000), a fifth of them on a virtual GPU.
"""

from __future__ import annotations

import os
import pathlib
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Optional

from memtui.inject.attach import Outcome, attach
from memtui.wire import codec
from memtui.wire.frames import Frame, Request

from . import surroundings
from .report import Line, Skipped

TIMES = int(os.environ.get("MEMTUI_BENCH_INJECTIONS", "1000"))
KILLS = max(10, TIMES // 10)
#: The time an attachment takes by itself, through which the kills are spread.
KILL_SECONDS = 0.15
TIMEOUT = 30.0
_ATTACH = "import sys; from memtui.inject.attach import attach; attach(int(sys.argv[1]), timeout=20)"


def bench() -> Iterator[Line]:
    """Crashes, hangs, losses and pauses."""
    with surroundings.runtime_folder() as runtime:
        environment = {**surroundings.plain(), "CUDA_VISIBLE_DEVICES": "", "MEMTUI_RUNTIME_DIR": str(runtime)}
        yield from _course("CPU", "cpu", environment, runtime, TIMES)
        yield from _killed(environment, runtime)
    with surroundings.runtime_folder() as runtime:
        try:
            virtual = surroundings.with_virtual_gpu(runtime, agent=False)
        except Skipped as reason:
            yield Line("virtual GPU", f"skipped: {reason}")
            return
        yield from _course("virtual GPU", "cuda", virtual, runtime, TIMES // 5)


class Training:
    """The busy program, in a folder of its own."""

    def __init__(self, device: str, environment: dict[str, str], folder: pathlib.Path, steps: int = 0) -> None:
        self.folder = folder
        folder.mkdir()
        program = str(surroundings.PROGRAMS / "injected.py")
        command = [sys.executable, program, device, str(folder), str(steps)]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    @property
    def steps(self) -> list[tuple[float, int]]:
        """(loss, nanoseconds) of each step so far."""
        try:
            data = (self.folder / "steps").read_bytes()
        except FileNotFoundError:
            return []
        return list(struct.iter_unpack("<dq", data[: len(data) // 16 * 16]))

    def goes_on(self, seconds: float = 20.0) -> bool:
        """Whether another step is done in time."""
        before, end = len(self.steps), time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if len(self.steps) > before:
                return True
            time.sleep(0.005)
        return False

    def end(self) -> tuple[Optional[int], str]:
        """(its status, None where it hung; what it printed)."""
        (self.folder / "stop").touch()
        try:
            output, _ = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None, self.process.communicate()[0]
        return self.process.returncode, output


def _course(name: str, device: str, environment: dict[str, str], runtime: pathlib.Path, times: int) -> Iterator[Line]:
    training = Training(device, environment, runtime / f"{device}-attached")
    training.goes_on(60)
    time.sleep(2)
    plain = len(training.steps)
    outcomes: list[Outcome] = []
    wrong: list[str] = []
    longest: list[int] = []
    for _ in range(times):
        before = len(training.steps)
        outcome = attach(training.process.pid, timeout=TIMEOUT)
        outcomes.append(outcome)
        if outcome.status != "attached" or outcome.socket is None or outcome.already:
            wrong.append(outcome.text)
            if training.process.poll() is not None or not training.goes_on():
                break
            continue
        try:
            _talk(outcome.socket)
        except OSError as error:
            wrong.append(f"the agent hung up: {error}")
        longest.append(max((step[1] for step in training.steps[before:]), default=0))
    hung = training.process.poll() is None and not training.goes_on()
    status, output = training.end()
    pauses = [outcome.paused_ns for outcome in outcomes if outcome.paused_ns is not None]
    waits = [outcome.waited_ns for outcome in outcomes if outcome.waited_ns is not None]
    lived = not hung and status == 0
    shown = f"{len(outcomes) - len(wrong)} of {times}" + (f"; first: {wrong[0]}" if wrong else "")
    yield Line(f"{name}: attached, watched and unloaded", shown, f"{times} of {times}", not wrong)
    text = "hung" if hung or status is None else "went on" if status == 0 else f"status {status}: {output[-200:]}"
    yield Line(f"{name}: the program", text, "went on", lived)
    if device == "cpu":
        yield _compared(training, environment, runtime)
    if pauses:
        yield Line(f"{name}: one thread was held", _spread(pauses))
        yield Line(f"{name}: until the agent listened", _spread(waits))
    took = [step[1] for step in training.steps]
    if plain and len(took) > plain:
        yield Line(f"{name}: steps, without", _spread(took[:plain]))
        yield Line(f"{name}: longest step of each attachment", _spread(longest))
        yield Line(f"{name}: steps, being attached and unloaded", _spread(took[plain:]))


def _compared(training: Training, environment: dict[str, str], runtime: pathlib.Path) -> Line:
    """The same training once more, without being attached to."""
    losses = [step[0] for step in training.steps]
    if not losses:
        return Line("CPU: losses", "none", "equal", False)
    alone = Training("cpu", environment, runtime / f"{training.folder.name}-alone", steps=len(losses))
    alone.process.communicate(timeout=1800)
    equal = [step[0] for step in alone.steps] == losses
    return Line("CPU: losses", f"{'equal' if equal else 'DIFFERENT'} over {len(losses)} steps", "equal", equal)


def _killed(environment: dict[str, str], runtime: pathlib.Path) -> Iterator[Line]:
    """SIGKILL of the tool at random moments."""
    training = Training("cpu", environment, runtime / "killed")
    training.goes_on(60)
    random.seed(1)
    command = [sys.executable, "-c", _ATTACH, str(training.process.pid)]
    kills, wrong = 0, []
    for _ in range(KILLS):
        tool = subprocess.Popen(command, env=environment)
        time.sleep(0.05 + random.random() * KILL_SECONDS)
        if tool.poll() is None:
            kills += 1
        tool.send_signal(signal.SIGKILL)
        tool.wait()
        if not training.goes_on():
            break
        outcome = attach(training.process.pid, timeout=TIMEOUT)
        if outcome.status != "attached" or outcome.socket is None:
            wrong.append(outcome.text)
            continue
        try:
            _talk(outcome.socket)
        except OSError as error:
            wrong.append(f"the agent hung up: {error}")
    hung = training.process.poll() is None and not training.goes_on()
    status, output = training.end()
    text = "hung" if hung or status is None else "went on" if status == 0 else f"status {status}: {output[-200:]}"
    what = f"CPU: the tool is killed {kills} times while it attaches"
    yield Line(what, text, "went on", kills > 0 and not hung and status == 0)
    after = f"{len(wrong)} of {KILLS} did not get in" + (f"; first: {wrong[0]}" if wrong else "")
    yield Line("CPU: the tool after one that was killed", after, f"0 of {KILLS}", not wrong)
    yield _compared(training, environment, runtime)


def _talk(path: pathlib.Path) -> None:
    """A viewer that sees a frame and unloads the agent."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(os.fspath(path))
        connection.sendall(codec.encode(Request("hello", history=False)))
        splitter = codec.Splitter()
        while True:
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionResetError("before a frame")
            if any(isinstance(codec.decode(body), Frame) for body in splitter.feed(data)):
                break
        connection.sendall(codec.encode(Request("unload")))
        while connection.recv(1 << 16):
            continue


def _spread(nanoseconds: list[int]) -> str:
    return f"median {statistics.median(nanoseconds) / 1e6:.2f} ms, worst {max(nanoseconds) / 1e6:.1f} ms"
