"""`memtui watch` on a terminal of 120x40: 1,024 simulated ranks on 64 hosts, scraped by a real Prometheus."""

from __future__ import annotations

import contextlib
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from memtui.prometheus.address import parse_address
from memtui.prometheus.client import Client
from memtui.prometheus.collect import Collector
from memtui.prometheus.fleet import fleet_of
from memtui.prometheus.selector import Selector

from . import surroundings
from .report import Line, Skipped, at_most
from .terminal import Terminal

RANKS, HOSTS, INTERVAL_S = 1_024, 64, 2.0
SECONDS, LOOKS = 30.0, 7
#: Until the planted rank has been silent for long enough, and charts have something to show.
_SETTLING_S = 40.0
_PLANTED = re.compile(r"full=(\d+), large=(\d+), silent=(\d+)")


def bench() -> Iterator[Line]:
    """A refresh, processor time, memory and traffic; and whether what is planted stands on the first page."""
    if shutil.which("prometheus") is None:
        raise Skipped("prometheus is not installed")
    with _fleet() as (url, planted):
        time.sleep(_SETTLING_S)
        yield from _refreshes(url)
        command = [sys.executable, "-m", "memtui", "watch", "--prometheus", url]
        yield from _first_page(command, planted)
        terminal = Terminal(command, surroundings.plain())
        try:
            time.sleep(12)
            cpu, received, begun = terminal.cpu_seconds(), terminal.received, time.perf_counter()
            time.sleep(SECONDS)
            assert terminal.process.poll() is None, "the viewer ended"
            took = time.perf_counter() - begun
            share = (terminal.cpu_seconds() - cpu) / took
            yield at_most(f"{RANKS:,} ranks, processor time at a look every 2 s", share, 0.30, "s/s", 3)
            yield at_most("resident memory", terminal.rss_bytes() / 1e6, 200, "MB", 1)
            yield Line("terminal traffic", f"{(terminal.received - received) / took / 1024:.2f} KB/s")
            terminal.press("\r")  # a rank, with an hour of its past
            time.sleep(15)
            yield at_most("resident memory with a rank opened", terminal.rss_bytes() / 1e6, 200, "MB", 1)
        finally:
            terminal.close()


@contextlib.contextmanager
def _fleet() -> Iterator[tuple[str, list[str]]]:
    """The server's URL, and the numbers of the planted ranks."""
    command = [sys.executable, "-m", "tests.support.fleet", "--ranks", str(RANKS), "--hosts", str(HOSTS)]
    command += ["--interval", str(INTERVAL_S), "--silent-after", "15"]
    with subprocess.Popen(command, cwd=surroundings.ROOT, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            url = child.stdout.readline().strip()
            found = _PLANTED.search(child.stdout.readline())
            assert found is not None
            yield url, list(found.groups())
        finally:
            child.terminate()
            child.wait(30)


def _refreshes(url: str) -> Iterator[Line]:
    """From the first query to the rows, as in the app."""
    client = Client(parse_address(url))
    collector = Collector(client, Selector())
    took: list[float] = []
    fleet = fleet_of(collector.look())
    for _ in range(LOOKS):
        shown = list(fleet.courses[0].keys.values())[:32]
        begun, received = time.perf_counter(), client.received_bytes
        fleet = fleet_of(collector.look(shown=shown))
        took.append(time.perf_counter() - begun)
        size = client.received_bytes - received
        time.sleep(1)
    yield at_most(f"a refresh, median of {LOOKS}", statistics.median(took), 1.0, "s", 2)
    yield Line("a refresh, the longest", f"{max(took):.2f} s")
    yield Line("what a refresh receives", f"{size / 1e6:.2f} MB")


def _first_page(command: list[str], planted: list[str]) -> Iterator[Line]:
    """Outliers that are rows of the first page without a key being pressed."""
    terminal = Terminal(command, surroundings.plain(), screen=True)
    try:
        seconds = terminal.until("by outliers", "GiB", "SILENT", seconds=60)
        assert terminal._screen is not None
        shown = "\n".join(terminal._screen.display)
    finally:
        terminal.close()
    missing = [rank for rank in planted if not re.search(rf"^.?\s*{rank} .*(cuda:|node-)", shown, re.MULTILINE)]
    yield Line("first figures on the screen", f"{seconds:.2f} s")
    yield at_most("planted outliers that are not on the first page", len(missing), 0, "", 0)
