"""What memtui says a change would come to, against the changed program's own peak, on a virtual GPU."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Callable

from memtui.analysis.units import size
from memtui.analysis.whatif.panel import Largest, Panel, build_panel
from memtui.session.session import Session
from memtui.sources.monitor import Monitor
from memtui.sources.virtual_driver import use_driver_of

from . import surroundings
from .report import Line

_PROGRAM = str(surroundings.PROGRAMS / "whatif.py")
_SECONDS = 120
#: By the program's names for them, as the page has them.
_WORDS = {
    "none": "now",
    "batch": "batch ×2",
    "accumulate": "half the batch, accumulated",
    "checkpointing": "gradient checkpointing",
    "autocast": "bf16 autocast",
    "bf16": "bf16, parameters and all",
    "frozen": "half the model frozen",
    "sgd": "SGD without momentum",
    "fused": "fused optimizer step",
}
#: Of the truth; and a bound may not be on the wrong side by more.
_ERROR = 0.05


def bench() -> Iterator[Line]:
    """Each kind and change, by the looks between phases and by a recorded step; then the largest batch that fits."""
    with surroundings.runtime_folder() as runtime, _sockets_in(str(runtime)):
        env = surroundings.with_virtual_gpu(runtime)
        without = surroundings.with_virtual_gpu(runtime, agent=False)
        use_driver_of(env)
        found = subprocess.run(
            [sys.executable, _PROGRAM, "truth"], env=without, stdout=subprocess.PIPE, timeout=5 * _SECONDS, check=True
        )
        for kind, by_change in json.loads(found.stdout.splitlines()[-1]).items():
            looked, recorded = _watched(kind, env)
            for change, truth in by_change.items():
                yield _line(f"{kind}, {change}: looks", looked, change, truth, held=False)
                yield _line(f"{kind}, {change}: recorded", recorded, change, truth, held=True)
            yield _largest(kind, recorded.largest, without)


def _largest(kind: str, largest: Largest, env: dict[str, str]) -> Line:
    """Whether the careful figure comes through, and a twentieth more than the other does not."""
    most, careful = largest.times, largest.careful_times
    if most is None or careful is None:
        return Line(f"{kind}, largest batch", "–", "a figure", False)
    through = [_comes_through(kind, times, env) for times in (careful, most, most * (1 + _ERROR))]
    words = ["comes through" if each else "does not" for each in through]
    shown = f"×{careful:.2f} {words[0]}, ×{most:.2f} {words[1]}, {_ERROR:.0%} more {words[2]}"
    return Line(f"{kind}, largest batch", shown, "first does, last does not", through[0] and not through[2])


def _comes_through(kind: str, times: float, env: dict[str, str]) -> bool:
    command = [sys.executable, _PROGRAM, kind, str(times)]
    done = subprocess.run(command, env=env, stderr=subprocess.PIPE, timeout=_SECONDS, check=False)
    if done.returncode and b"OutOfMemoryError" not in done.stderr:
        raise RuntimeError(done.stderr.decode().strip().rpartition("\n")[2])
    return not done.returncode


def _line(what: str, panel: Panel, change: str, truth: int, *, held: bool) -> Line:
    answers = (panel.present, *panel.answers)
    answer = next((each for each in answers if each is not None and each.words == _WORDS[change]), None)
    if answer is None or answer.peak_bytes is None:
        return Line(what, f"– ({panel.reason if answer is None else answer.why_not}), {size(truth)} really")
    error = answer.peak_bytes / truth - 1
    bar = {"": f"within {_ERROR:.0%}", "≥": "not above it", "≤": "not below it"}[answer.sign]
    met = {"": abs(error), "≥": error, "≤": -error}[answer.sign] <= _ERROR
    shown = f"{answer.sign}{size(answer.peak_bytes)}, {size(truth)} really, {error:+.1%}"
    return Line(what, shown, bar if held else "", met if held else None)


def _watched(kind: str, env: dict[str, str]) -> tuple[Panel, Panel]:
    with subprocess.Popen([sys.executable, _PROGRAM, kind], env=env) as child:
        try:
            return asyncio.run(_panels(child.pid))
        finally:
            child.kill()


@contextlib.contextmanager
def _sockets_in(folder: str) -> Iterator[None]:
    before = os.environ.get("MEMTUI_RUNTIME_DIR")
    os.environ["MEMTUI_RUNTIME_DIR"] = folder
    try:
        yield
    finally:
        del os.environ["MEMTUI_RUNTIME_DIR"]
        if before is not None:
            os.environ["MEMTUI_RUNTIME_DIR"] = before


async def _panels(pid: int) -> tuple[Panel, Panel]:
    monitor = Monitor(pid)
    await monitor.start()
    try:
        await _until(monitor.session, _stepped)
        looked = build_panel(monitor.session, "cuda:0", time.monotonic_ns())
        monitor.request("record")
        await _until(monitor.session, lambda session: bool(session.recorded("cuda:0")))
        return looked, build_panel(monitor.session, "cuda:0", time.monotonic_ns())
    finally:
        await monitor.stop()


def _stepped(session: Session) -> bool:
    pair = session.paired("cuda:0")
    read = pair is not None and pair.settled and pair.reading.process_bytes is not None
    return session.frame is not None and session.frame.step >= 12 and session.model is not None and read


async def _until(session: Session, reached: Callable[[Session], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not reached(session):
        if time.monotonic() > deadline:
            raise TimeoutError(session.connection_text or "the training did not get so far")
        await asyncio.sleep(0.05)
