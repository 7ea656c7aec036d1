"""Opening large memory snapshots, beside `pickle.load` of the same file in the same run.

The files are made here, of events, stacks and frames as torch 2.14 shares them: frames of one line are one object, an
allocation has a list of its own, and both events of a release have one. Each opening is a process of its own: all its
processor time and its highest resident memory, with the interpreter's start and end.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import pickle
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from memtui.snapshots.answers import Mark, answer, overview
from memtui.snapshots.model import open_snapshot
from memtui.snapshots.queries import Opened
from memtui.snapshots.reading import estimated_bytes
from memtui.tui.glyphs import UNICODE
from memtui.tui.look import make as make_look
from memtui.tui.palette import THEMES
from memtui.tui.plot.coursepicture import area, course_scale
from memtui.tui.plot.coursewindow import CourseWindow

from . import surroundings
from .report import Line, at_most

#: (events, highest ratio of processor time): from DESIGN, section 7. For memory it is the same for both.
BARS = ((240_000, 1.5), (1_000_000, 1.3))
MEMORY_BAR = 1.3
#: What the screen answers of an instant, on a thread beside the interface; what is asked for meanwhile waits for it.
ANSWER_BAR_MS = 150.0
#: A key's picture of a timeline, at 120x40.
PICTURE_BAR_MS = 10.0
#: The ratios are of medians; a shared machine has slow moments.
RUNS = 5
_LINES = 700
_SIZES_BYTES = (512, 1024, 2048, 4 << 20, 16 << 20, 24 << 20)
_BARE = "import pickle, sys\nwith open(sys.argv[1], 'rb') as file:\n    held = pickle.load(file)\n"
_SEED = 5
#: Others that open such files, where they are installed: name, module, program. ptmem and mosaic are run as their
#: commands do it up to the first answer; torch's own writes the page that a browser then draws.
_RIVALS = (
    (
        "torch's own page",
        "torch",
        "import os, pickle, sys\nfrom torch.cuda import _memory_viz\nwith open(sys.argv[1], 'rb') as file:\n"
        "    page = _memory_viz.trace_plot(pickle.load(file))\nwith open(os.devnull, 'w') as out:\n"
        "    out.write(page)\n",
    ),
    (
        "ptmem",
        "ptmem",
        "import sys\nfrom ptmem.cli import MemoryProfileData, print_summary\n"
        "print_summary(MemoryProfileData(sys.argv[1]), sys.argv[1])\n",
    ),
    ("mosaic", "mosaic", "from mosaic.cmd.get_memory_usage_peak import main\nmain()\n"),
)
_MOSAIC = ("--snapshot",)
_RIVAL_RUNS = 2


class Cost(NamedTuple):
    """What one process took."""

    cpu_seconds: float
    peak_bytes: int


def bench() -> Iterator[Line]:
    """`memtui open`, all of it, with a page printed."""
    with tempfile.TemporaryDirectory(prefix="memtui-bench-") as folder:
        for events, bar in BARS:
            path = str(pathlib.Path(folder) / f"{events}.pickle")
            make(path, events)
            bare, opened = [], []
            for _ in range(RUNS):
                bare.append(_cost(["-c", _BARE, path]))
                opened.append(_cost(["-m", "memtui", "open", path]))
            yield from _lines(events, bar, bare, opened)
            yield from _rivals(path, events, bare)
            taken = statistics.median(cost.peak_bytes for cost in opened)
            yield Line(f"memory foretold, {events:,} events", f"{estimated_bytes(path) / taken:.2f} x what it took")
            if events == BARS[0][0]:
                yield from _screen(path, events)
            os.unlink(path)


def _rivals(path: str, events: int, bare: list[Cost]) -> Iterator[Line]:
    base = Cost(statistics.median(cost.cpu_seconds for cost in bare), min(cost.peak_bytes for cost in bare))
    for name, module, program in _RIVALS:
        if importlib.util.find_spec(module) is None:
            yield Line(f"{name}, {events:,} events", f"not run: {module} is not installed")
            continue
        costs = []
        for _ in range(_RIVAL_RUNS):
            costs.append(_cost(["-c", program, *(_MOSAIC if module == "mosaic" else ()), path], talks=True))
            for kept in pathlib.Path(path).parent.glob(".*.memcache"):  # what ptmem keeps for its next start
                kept.unlink()
        seconds, held = min(cost.cpu_seconds for cost in costs), min(cost.peak_bytes for cost in costs)
        ratios = f"{seconds / base.cpu_seconds:.2f} x the CPU, {held / base.peak_bytes:.2f} x the memory"
        yield Line(f"{name}, {events:,} events", f"{ratios} ({seconds:.2f} s, {held / 1e6:.0f} MB)")


def _screen(path: str, events: int) -> Iterator[Line]:
    """What keys of the screen cost: an instant's tables, difference and flame view, and the timeline anew."""
    snapshot = open_snapshot(path)
    opened = Opened(snapshot, snapshot.device(None))
    last, peak = opened.course.instants - 1, opened.course.peak
    mark = Mark(opened, peak, "the peak")
    answers = [_cpu_ms(lambda number=number: answer(opened, number, mark)) for number in range(1, last, last // 9)]
    note = f" (most {max(answers):.0f} ms)"
    yield at_most(f"screen, {events:,} events, an instant", statistics.median(answers), ANSWER_BAR_MS, "ms", 0, note)
    whole, look, pictures = overview(opened), make_look(THEMES[0], UNICODE, "truecolor"), []
    scale = course_scale(whole, 15, fit=False)
    for length in [last >> halves for halves in range(12)] * 3:
        window = CourseWindow(last + 1, max(0, min(peak - length // 2, last + 1 - length)), length, peak)
        pictures.append(_cpu_ms(lambda window=window: area(whole, window, 113, scale, 15, look)))
    note = f" (most {max(pictures):.1f} ms)"
    text = f"screen, {events:,} events, the timeline anew"
    yield at_most(text, statistics.median(pictures), PICTURE_BAR_MS, "ms", 1, note)


def _cpu_ms(work: Callable[[], object]) -> float:
    begun_ns = time.process_time_ns()
    work()
    return (time.process_time_ns() - begun_ns) / 1e6


def _lines(events: int, bar: float, bare: list[Cost], opened: list[Cost]) -> Iterator[Line]:
    base_seconds = statistics.median(cost.cpu_seconds for cost in bare)
    seconds = statistics.median(cost.cpu_seconds for cost in opened)
    base_bytes = statistics.median(cost.peak_bytes for cost in bare)
    peak_bytes = statistics.median(cost.peak_bytes for cost in opened)
    yield Line(f"pickle.load, {events:,} events", f"{base_seconds:.2f} s, {base_bytes / 1e6:.0f} MB")
    note = f" ({seconds:.2f} s, median of {RUNS})"
    yield at_most(f"memtui open, {events:,} events, CPU", seconds / base_seconds, bar, "x", 2, note)
    note = f" ({peak_bytes / 1e6:.0f} MB)"
    yield at_most(f"memtui open, {events:,} events, memory", peak_bytes / base_bytes, MEMORY_BAR, "x", 2, note)


def _cost(arguments: list[str], *, talks: bool = False) -> Cost:
    told = subprocess.DEVNULL if talks else None
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=told, env=surroundings.plain()
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{arguments} ended with {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def make(path: str, events: int) -> None:
    """A snapshot of so many events of one device, some hundred blocks live at the end."""
    chance = random.Random(_SEED)
    lines = [
        {"name": f"function_{line}", "filename": f"/env/torch/nn/modules/module_{line % 60}.py", "line": line}
        for line in range(_LINES)
    ]
    trace: list[dict[str, Any]] = []
    live: list[tuple[int, int]] = []
    time_us, address = 1_772_688_692_031_317, 139_781_763_760_128

    def add(action: str, place: int, size_bytes: int, frames: list[dict[str, Any]]) -> None:
        event = {"action": action, "addr": place, "size": size_bytes, "stream": 0, "time_us": time_us}
        trace.append({**event, "compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0), "frames": frames})

    def stack() -> list[dict[str, Any]]:
        begin, step = chance.randrange(_LINES), chance.choice((1, 3, 7))
        return [lines[(begin + depth * step) % _LINES] for depth in range(chance.randrange(20, 44))]

    while len(trace) < events:
        time_us += chance.randrange(1, 60)
        if live and (len(live) > 800 or chance.random() < 0.45):
            place, size_bytes = live.pop(chance.randrange(len(live)))
            frames = stack()
            add("free_requested", place, size_bytes, frames)
            add("free_completed", place, size_bytes, frames)
        else:
            address += 25 << 20
            size_bytes = chance.choice(_SIZES_BYTES)
            live.append((address, size_bytes))
            add("alloc", address, size_bytes, stack())
    with open(path, "wb") as file:
        told = {"segments": [_segment(*each) for each in sorted(live)], "device_traces": [trace]}
        pickle.dump({**told, "allocator_settings": {}, "external_annotations": []}, file)


def _segment(address: int, size_bytes: int) -> dict[str, Any]:
    block = {"address": address, "size": size_bytes, "requested_size": size_bytes, "state": "active_allocated"}
    sizes = dict.fromkeys(("total_size", "allocated_size", "active_size", "requested_size"), size_bytes)
    place = {"device": 0, "address": address, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0)}
    return {**place, **sizes, "is_expandable": False, "frames": [], "blocks": [{**block, "frames": []}]}
