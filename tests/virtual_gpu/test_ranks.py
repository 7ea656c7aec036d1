"""Real launchers on virtual GPUs: every rank is found, named and read, and what goes wrong between them is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Optional

import psutil
import pytest

from memtui.ranks.row import RankRow
from memtui.ranks.view import RanksView, build_ranks
from memtui.sources.monitor import Monitor
from memtui.sources.ranks import Ranks
from tests.support import programs
from tests.support.virtual_gpu import virtual_environment

pytestmark = pytest.mark.virtual_gpu

PROGRAM = str(programs.PROGRAMS / "ranked.py")
_SECONDS = 120.0


@dataclass(frozen=True)
class Seen:
    """What one look at all ranks found, and what cannot be told by the view."""

    view: RanksView
    live_ns: dict[int, tuple[int, int]]  # by rank: when its agent began, and when it was heard first
    reserved: dict[int, Optional[int]]
    pids: dict[int, int]
    past: int = 0


def _port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@contextlib.contextmanager
def launched(folder: pathlib.Path, count: int, *arguments: str, words: tuple[str, ...] = ()) -> Iterator[int]:
    """torchrun with so many ranks on as many GPUs; its pid."""
    environment = programs.virtual_environment_with_agent(folder, memory="8GiB", count=count, context="300MiB")
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(count), "--standalone", *words]
    quiet = subprocess.DEVNULL
    with programs.started(
        *launcher, PROGRAM, *arguments, environment=environment, direct=False, stdout=quiet, stderr=quiet
    ) as process:
        os.environ["MEMTUI_RUNTIME_DIR"] = str(folder)
        try:
            yield process.pid
        finally:
            del os.environ["MEMTUI_RUNTIME_DIR"]
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)  # which it passes on
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)


Until = Callable[[RanksView], bool]
Then = Callable[[Seen], None]


def look(pid: int, until: Until, *, then: Optional[Then] = None, after: Optional[Until] = None) -> list[Seen]:
    """What a feed of the launcher's ranks says once `until` holds; and, `then` done, once `after` does.

    In a process of its own: NVML's stand-in belongs to one set of virtual GPUs at a time.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_look, pid, until, then, after).result()


def _look(pid: int, until: Until, then: Optional[Then], after: Optional[Until]) -> list[Seen]:
    from memtui.sources.virtual_driver import use_driver_of_process

    use_driver_of_process(pid)

    async def run() -> list[Seen]:
        ranks = Ranks(Monitor(pid), search=True)
        await ranks.start()
        heard: dict[int, int] = {}
        seen = []
        for wanted in (until, after):
            if wanted is None:
                continue
            end = time.monotonic() + _SECONDS
            while True:
                await asyncio.sleep(0.1)
                for member in ranks.members:
                    if member.session.frame is not None and member.rank is not None:
                        heard.setdefault(member.rank, time.monotonic_ns())
                view = build_ranks(ranks.members, ranks.now_ns(), ranks.driver)
                if wanted(view):
                    break
                assert time.monotonic() < end, (view.rows, view.findings)
            seen.append(_seen(ranks, view, heard))
            if then is not None and wanted is until:
                then(seen[-1])
        await ranks.stop()
        return seen

    return asyncio.run(run())


def _seen(ranks: Ranks, view: RanksView, heard: dict[int, int]) -> Seen:
    live, reserved, pids = {}, {}, {}
    for member in ranks.members:
        hello, rank = member.session.hello, member.rank
        if hello is None or rank is None:
            continue
        live[rank] = (hello.started_ns, heard[rank])
        frame = member.session.device_frame(member.session.default_device())
        reserved[rank] = None if frame is None else frame.reserved_bytes
        pids[rank] = member.pid
    return Seen(view, live, reserved, pids, len(view.past))


# What is waited for: functions of a module, that another process can be given them.


def working(count: int, view: RanksView) -> bool:
    """So many ranks, each with some steps, looked at, and on a device that the driver tells of."""
    ready = [row for row in view.rows if (row.completed or 0) >= 12 and row.holding.looks and row.used.value]
    return len(ready) >= count and all(row.bar.label == "device" for row in ready)


class _When:
    """A condition that can be sent to another process: `count` ranks at work, then a finding of `key`."""

    def __init__(self, count: int, *keys: str) -> None:
        self.count, self.keys = count, keys

    def __call__(self, view: RanksView) -> bool:
        told = set(self.keys) <= {finding.key for finding in view.findings}
        # Where many keys are waited for the ranks go on, and the driver is read beside figures that stand still.
        return told and (len(self.keys) == 1 or working(self.count, view))


class _Signals:
    """Sends a signal to one rank."""

    def __init__(self, rank: int, number: int) -> None:
        self.rank, self.number = rank, number

    def __call__(self, seen: Seen) -> None:
        os.kill(seen.pids[self.rank], self.number)


def _row(seen: Seen, rank: int) -> RankRow:
    return next(row for row in seen.view.rows if row.rank == rank)


def _text(seen: Seen, key: str) -> str:
    return next(finding.text for finding in seen.view.findings if finding.key == key)


def test_two_ranks_are_named_and_the_odd_one_is_told(tmp_path: pathlib.Path) -> None:
    """GIVEN DDP where rank 1 has larger batches and began on device 0, WHEN it is stopped, THEN each is said of it.

    Workers of data loaders, which are forked from the ranks with their environment, are no ranks.
    """
    with launched(tmp_path, 2, "--large", "1", "--stray", "1", "--workers", "2", "--seconds", "90") as pid:
        before, after = look(
            pid, _When(2, "batches", "tensors elsewhere"), then=_Signals(1, signal.SIGSTOP), after=_When(2, "stopped")
        )
        os.kill(before.pids[1], signal.SIGCONT)

    assert [(row.rank, row.local_rank, row.world_size) for row in before.view.rows] == [(0, 0, 2), (1, 1, 2)]
    uuids = {row.uuid for row in before.view.rows}
    assert len(uuids) == 2
    assert all(uuids)
    assert {row.host for row in before.view.rows} == {socket.gethostname()}
    for began, heard in before.live_ns.values():
        assert heard - began < 2_000_000_000
    assert _row(before, 0).pid != _row(before, 1).pid
    # The driver's figures of a rank are its own: context and what its allocator has reserved.
    for row in before.view.rows:
        assert sum(band.figure.value or 0 for band in row.bar.bands) == row.total.value == 8 << 30

    found = {finding.key: finding for finding in before.view.findings}
    assert found["batches"].ranks == (1,)
    assert "activations" in found["batches"].text
    assert "larger" in found["batches"].text
    assert found["tensors elsewhere"].ranks == (1,)
    assert "cuda:0, the device of rank 0" in found["tensors elsewhere"].text
    assert before.view.facts == "DDP: reduction buckets 4.0 MiB a rank"

    stopped = next(finding for finding in after.view.findings if finding.key == "stopped")
    assert stopped.ranks == (1,)
    assert f"kill -CONT {before.pids[1]}" in stopped.text
    assert _row(after, 1).state == "stopped"


@pytest.mark.timeout(400)
def test_eight_ranks(tmp_path: pathlib.Path) -> None:
    """GIVEN eight ranks of DDP, one with larger batches, THEN their figures are their own; WHEN one is killed, told."""
    with launched(tmp_path, 8, "--large", "5", "--own", str(tmp_path), "--at", "10", "--seconds", "240") as pid:
        before, after = look(pid, _When(8), then=_Signals(2, signal.SIGKILL), after=_When(8, "ended"))

    assert [row.rank for row in before.view.rows] == list(range(8))
    assert len({row.uuid for row in before.view.rows}) == 8
    for row in before.view.rows:
        own = json.loads((tmp_path / f"own-{row.rank}.json").read_text())
        assert row.peak.value == own["peak"]
        assert before.reserved[row.rank] == own["reserved"]
    for rank, (began, heard) in before.live_ns.items():
        assert heard - began < 2_000_000_000, rank
    odd = next(finding for finding in before.view.findings if finding.key == "batches")
    assert odd.ranks == (5,)
    assert next(finding for finding in after.view.findings if finding.key == "ended").ranks[0] == 2


def test_a_rank_that_dies_is_told_with_its_last_figures_and_comes_back(tmp_path: pathlib.Path) -> None:
    """GIVEN an elastic launcher, WHEN rank 1 raises, THEN it is told as the first, and all come back as other lives.

    Each trains for itself: gloo's second meeting fails now and then.
    """
    words = ("--max-restarts", "1", "--monitor-interval", "0.2")
    with launched(tmp_path, 2, "--kind", "alone", "--fails", "1", "--at", "25", words=words) as pid:
        first, second = look(pid, _When(2), after=_Lives(2, 2))
        third = look(pid, _Lives(2, 1))[0]

    assert first.past == 0
    assert second.past == 2
    told = _text(second, "restarted")
    assert "ranks 0 and 1 came back (life 2)" in told
    assert "rank 1 ended first: ValueError: no such sample" in told
    assert "step 2" in told
    assert {row.life for row in second.view.rows} == {2}
    assert {row.rank: row.over for row in second.view.past} == {0: True, 1: True}
    ended = next(row for row in second.view.past if row.rank == 1)
    assert ended.completed is not None
    assert 12 <= ended.completed <= 25
    assert ended.peak.value
    # A viewer that came later sees only the life that there is.
    assert [row.life for row in third.view.rows] == [1, 1]


class _Lives:
    """So many ranks that step, in this life of theirs."""

    def __init__(self, count: int, life: int) -> None:
        self.count, self.life = count, life

    def __call__(self, view: RanksView) -> bool:
        return len(view.rows) == self.count and all(row.completed and row.life == self.life for row in view.rows)


def test_a_rank_that_is_killed_and_one_that_sleeps(tmp_path: pathlib.Path) -> None:
    """GIVEN FSDP2 where rank 0 sleeps, WHEN rank 1 is killed, THEN the one is said to stand still, the other to end."""
    with launched(tmp_path, 2, "--kind", "fsdp", "--sleeps", "0", "--at", "25", "--seconds", "90") as pid:
        sleeping, killed = look(pid, _When(2, "stalled"), then=_Signals(1, signal.SIGKILL), after=_When(2, "ended"))

    stalled = next(finding for finding in sleeping.view.findings if finding.key == "stalled")
    assert stalled.ranks == (0,)
    assert "step 25" in stalled.text
    assert "the other waits" in stalled.text
    assert "FSDP: parameters sharded 2.0 MiB a rank" in sleeping.view.facts
    assert "gathered up to" in sleeping.view.facts

    text = _text(killed, "ended")
    assert text.startswith("rank 1 ended")
    assert "without a word" in text
    assert "step 25" in text
    assert _row(killed, 1).completed == 24
    assert _row(killed, 1).peak.value


@pytest.mark.parametrize("watched", [True, False])
def test_spawned_ranks_without_an_environment(watched: bool, tmp_path: pathlib.Path) -> None:
    """GIVEN torch.multiprocessing.spawn, whose ranks only the process group knows, both on one device, THEN both are
    found: by their agents, or by the driver's list, and then they get one.
    """
    environment = programs.virtual_environment_with_agent(tmp_path, memory="8GiB", count=2, context="300MiB")
    if not watched:
        environment = programs.plain_environment() | virtual_environment(memory="8GiB", count=2, context="300MiB")
        environment["MEMTUI_RUNTIME_DIR"] = str(tmp_path)
    environment["TEST_PORT"] = _port()
    with programs.started(
        PROGRAM,
        "--spawn",
        "2",
        "--share",
        "--seconds",
        "60",
        environment=environment,
        direct=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.environ["MEMTUI_RUNTIME_DIR"] = str(tmp_path)
        try:
            (seen,) = look(process.pid, _When(2, "shared"))
        finally:
            del os.environ["MEMTUI_RUNTIME_DIR"]
            started = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            for child in started:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()

    assert [row.rank for row in seen.view.rows] == [0, 1]
    assert len({row.uuid for row in seen.view.rows}) == 1
    assert "ranks 0 and 1 share cuda:0" in _text(seen, "shared")


def test_run_passes_status_and_output_on_and_prints_lines(tmp_path: pathlib.Path) -> None:
    """GIVEN a launcher whose rank raises, under `memtui run`, THEN its status and output are as without."""
    environment = programs.virtual_environment_with_agent(tmp_path, memory="8GiB", count=2, context="300MiB")
    environment["MEMTUI_RUNTIME_DIR"] = str(tmp_path)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", _port()]
    log = tmp_path / "run.jsonl"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "memtui",
            "run",
            "--headless",
            "--log",
            str(log),
            "--",
            *launcher,
            PROGRAM,
            "--fails",
            "0",
            "--at",
            "30",
        ],
        env={**environment, "PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert "ValueError: no such sample" in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("memtui: ")]
    assert any("2 ranks · fullest rank" in line for line in lines)
    assert any(line.startswith("memtui: rank 0") and "ValueError: no such sample" in line for line in lines)
    assert log.with_name("run.rank-0.jsonl").stat().st_size
    assert log.with_name("run.rank-1.jsonl").stat().st_size


def test_the_rank_that_ran_out_of_memory_is_reported(tmp_path: pathlib.Path) -> None:
    """GIVEN a launcher whose rank 1 runs out of memory, THEN the lines, the report of the run and that of its log are
    of rank 1, and say how rank 0 ended.
    """
    environment = programs.virtual_environment_with_agent(tmp_path, memory="8GiB", count=2, context="300MiB")
    root = str(pathlib.Path(__file__).resolve().parents[2])
    environment |= {"MEMTUI_RUNTIME_DIR": str(tmp_path), "PYTHONPATH": root}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", _port()]
    log, out = tmp_path / "run.jsonl", tmp_path / "out.txt"
    memtui = [sys.executable, "-m", "memtui"]
    command = [*memtui, "run", "--headless", "--log", str(log), "--report", str(out), "--", *launcher, PROGRAM]
    command += ["--kind", "alone", "--exhausts", "1", "--at", "30"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("memtui: ")]
    assert any(line.startswith("memtui: rank 1: out of memory on cuda:1") for line in lines), lines
    assert "memtui: exited with status 1" in lines
    again = subprocess.run(
        [*memtui, "report", str(log)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    for page in (out.read_text(), again.stdout):
        head = page.splitlines()[:8]
        assert any(line.startswith("This is rank 1 of 2, which failed first") for line in head), page
        assert any(line.startswith("rank 0: ") for line in head), page
        assert "OutOfMemoryError" in page
        assert "cuda:1" in page
