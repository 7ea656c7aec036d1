"""`memtui serve`: eight real ranks and eight whose streams were recorded, scraped every 15 s as Prometheus does."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

from . import surroundings
from .ranks import eight, record, training
from .report import Line, Skipped, at_most

SECONDS, SCRAPE_SECONDS = 60.0, 15.0
_SETTLING = 20.0
_GZIP = {"Accept": "application/openmetrics-text; version=1.0.0", "Accept-Encoding": "gzip"}
_TICKS = 100


def bench() -> Iterator[Line]:
    """Processor time and memory of the daemon, and what a scrape takes."""
    if importlib.util.find_spec("prometheus_client") is None:
        raise Skipped("prometheus-client is not installed")
    with surroundings.runtime_folder() as runtime:
        recording = runtime / "recording.json"
        with training(runtime) as pid:
            recording.write_text(json.dumps(record(runtime, pid)))
        for count in (8, 64):
            with _streams(runtime, recording, count):
                yield from _served(f"{count} recorded ranks", runtime, count)
            lost = int((runtime / "lost").read_text())
            yield at_most(f"{count} recorded ranks, frames not taken", lost, 0, "", 0)
    with surroundings.runtime_folder() as runtime, eight(runtime):
        yield from _served("8 real ranks of DDP", runtime, 8)


@contextlib.contextmanager
def _streams(runtime: pathlib.Path, recording: pathlib.Path, count: int) -> Iterator[None]:
    command = [sys.executable, str(surroundings.PROGRAMS / "streams.py"), str(recording), str(runtime), str(count)]
    environment = {**surroundings.with_virtual_gpu(runtime, agent=False), "MEMTUI_RUNTIME_DIR": str(runtime)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            yield
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(20)


def _served(what: str, runtime: pathlib.Path, count: int) -> Iterator[Line]:
    command = [sys.executable, "-m", "memtui", "serve", "--listen", "127.0.0.1:0"]
    environment = {**surroundings.plain(), "MEMTUI_RUNTIME_DIR": str(runtime)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            url = child.stdout.readline().split("metrics at ")[1].split(";")[0]
            time.sleep(_SETTLING)
            _scrape(url)
            cpu, begun, took, size = _cpu_seconds(child.pid), time.perf_counter(), [], 0
            while time.perf_counter() - begun < SECONDS:
                time.sleep(SCRAPE_SECONDS)
                before = time.perf_counter()
                size = _scrape(url)
                took.append(time.perf_counter() - before)
            share = (_cpu_seconds(child.pid) - cpu) / (time.perf_counter() - begun)
            assert child.poll() is None, "the daemon ended"
            bars = count == 8
            named = f"{what}, processor time"
            yield at_most(named, 100 * share, 1.0, "%", 2) if bars else Line(named, f"{100 * share:.2f} %")
            resident = _resident_bytes(child.pid) / 1e6
            named = f"{what}, resident memory"
            yield at_most(named, resident, 60, "MB", 1) if bars else Line(named, f"{resident:.1f} MB")
            yield Line(f"{what}, a scrape", f"{1000 * max(took):.0f} ms at most, {size / 1024:.1f} KiB gzipped")
        finally:
            child.terminate()
            child.wait(20)


def _scrape(url: str) -> int:
    with urllib.request.urlopen(urllib.request.Request(url, headers=_GZIP), timeout=30) as answer:
        return len(answer.read())


def _cpu_seconds(pid: int) -> float:
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def _resident_bytes(pid: int) -> int:
    [line] = [line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
