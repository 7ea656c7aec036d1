"""What the agent adds to a training step: blocks with it and without it in one process, phases and categories on."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from memtui.wire import codec, frames, paths

from . import surroundings
from .interval import Interval, interval
from .report import Line, at_most

STEP_SECONDS = (0.002, 0.02, 0.08)
PAIRS, BLOCK_SECONDS = 16, 3.0
#: A difference below this share of the step is none, however surely it is told from zero.
NEGLIGIBLE = 0.01


def bench() -> Iterator[Line]:
    """Added wall and processor time a step, and the time in the agent's own calls."""
    for seconds in STEP_SECONDS:
        with surroundings.runtime_folder() as runtime:
            yield from lines(seconds, measure(seconds, runtime))


def measure(seconds: float, runtime: pathlib.Path) -> dict[str, Any]:
    """Runs the child, with a viewer that takes all it sends."""
    command = [sys.executable, str(surroundings.PROGRAMS / "steps.py"), str(seconds), str(PAIRS), str(BLOCK_SECONDS)]
    environment = surroundings.with_virtual_gpu(runtime)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as child:
        threading.Thread(target=_drain, args=(runtime, child), daemon=True).start()
        assert child.stdout is not None
        report = child.stdout.read()
    if child.wait():
        raise RuntimeError(f"the training ended with status {child.returncode}")
    result: dict[str, Any] = json.loads(report)
    return result


def _drain(runtime: pathlib.Path, child: subprocess.Popen[bytes]) -> None:
    path = runtime / paths.agent_socket_name(child.pid)
    while not path.exists():
        if child.poll() is not None:
            return
        time.sleep(0.05)
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as viewer:
        viewer.connect(str(path))
        viewer.sendall(codec.encode(frames.Request("hello", protocol=frames.PROTOCOL, history=True)))
        while viewer.recv(1 << 16):
            pass


def lines(wanted: float, result: dict[str, Any]) -> Iterator[Line]:
    """One size's figures."""
    pairs = [{block["on"]: block for block in pair} for pair in result["pairs"]]
    assert not any(pair[False]["frames"] or pair[False]["looks"] for pair in pairs), "an off block was not off"
    looks, sent = (sum(pair[True][name] for pair in pairs) for name in ("looks", "frames"))
    assert sum(pair[True]["frames"] > 0 for pair in pairs) == len(pairs), "an on block was not on"
    step = statistics.median(pair[False]["wall"] for pair in pairs)
    size = f"{1e3 * wanted:g} ms"
    about = f"{1e3 * step:.1f} ms, {result['parameters']} parameters, {looks} looks, {sent} frames"
    # Less than a few steps looked at, and the figures would be of an agent without categories.
    yield Line(f"{size} step: {len(pairs)} pairs of {BLOCK_SECONDS:g} s", about, "≥ 8 looks", looks >= 8)
    wall, share = _differences(pairs, "wall")
    met = share.sure and (wall.has(0) or abs(share.median) < NEGLIGIBLE)
    yield Line(f"{size} step: added wall, µs", wall.text(1e6), "not told from 0, or < 1 %", met)
    yield Line(f"{size} step: added wall, %", share.text(100, 2))
    cpu, share = _differences(pairs, "cpu")
    held = wanted == 0.02
    yield Line(f"{size} step: added processor time, µs", cpu.text(1e6))
    yield Line(
        f"{size} step: added processor time, %",
        share.text(100, 2),
        "≤ +1 %" if held else "",
        share.sure and share.median <= 0.01 if held else None,
    )
    own = [nanoseconds / 1e3 for nanoseconds in result["own"]]
    mean = f" (mean {statistics.mean(own):.0f}, {len(own)} steps)"
    yield at_most(f"{size} step: in the agent's calls, median", statistics.median(own), 50, "µs", 1, mean)


def _differences(pairs: list[dict[bool, Any]], name: str) -> tuple[Interval, Interval]:
    """Seconds a step, and as a share of the step without."""
    added = [pair[True][name] - pair[False][name] for pair in pairs]
    return interval(added), interval([extra / pair[False][name] for extra, pair in zip(added, pairs)])
