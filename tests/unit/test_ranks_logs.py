"""Logs of several ranks: a file each, named in the program's own, and replayed together."""

from __future__ import annotations

import asyncio
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Optional

import pytest
from textual.pilot import Pilot

from memtui.ranks.view import build_ranks
from memtui.session.session import End
from memtui.sources.log_format import LogError
from memtui.sources.log_ranks import Side, log_of_rank, path_of_rank, rank_logs
from memtui.sources.log_writer import LogWriter
from memtui.sources.ranks_replay import RanksReplay
from memtui.tui.app import MemtuiApp
from memtui.wire.frames import Frame
from tests.support.made_up import BEGUN_NS, SECOND
from tests.support.made_up_ranks import MadeUpRanks, RankTraining
from tests.support.screens import drive, text

ROOT = pathlib.Path(__file__).resolve().parents[2]


def written(folder: pathlib.Path, ranks: int = 3, seconds: float = 12.0, ends: Sequence[End] = ()) -> str:
    """The log of ranks of which the last has twice the batch; `ends` are how they ended."""
    path = str(folder / "run.jsonl")
    main = LogWriter(path, "0.1.0")
    each = [RankTraining(rank, ranks, batch=2.0 if rank == ranks - 1 else 1.0) for rank in range(ranks)]
    for rank, training in enumerate(each):
        feed = MadeUpRanks([training], 0.0)
        log = log_of_rank(main, 4242 + rank, rank, 1)
        session = feed.sessions[0]
        log.message(training.hello(), session)
        for _ in range(int(seconds * 10)):
            feed.advance(0.1)
            frame = session.frame
            assert isinstance(frame, Frame)
            log.message(frame, session)
            if session.driver is not None and session.driver.time_ns == frame.time_ns:
                log.reading(session.driver)
        if ends:
            log.end(ends[rank])
        log.close()
    main.close()
    return path


def test_each_rank_and_life_has_a_file() -> None:
    assert path_of_rank("a/run.jsonl", 7, 3, 1) == "a/run.rank-3.jsonl"
    assert path_of_rank("a/run.jsonl", 7, 3, 2) == "a/run.rank-3.life-2.jsonl"
    assert path_of_rank("a/run", 7, None, 1) == "a/run.pid-7"
    assert path_of_rank("a/run", 7, None, 2) == "a/run.pid-7-2"


def trainings(folder: pathlib.Path, *sides: Optional[Side], rank: Optional[int] = None) -> str:
    """The log of processes of unlike trainings: each of pid 6022, and rank `rank` of one."""
    path = str(folder / "run.jsonl")
    main = LogWriter(path, "0.1.0")
    taken: set[str] = set()
    for number, side in enumerate(sides):
        training = RankTraining(number, 1)
        feed = MadeUpRanks([training], 0.0)
        log = log_of_rank(main, 6022, rank, 1, side, taken)
        session = feed.sessions[0]
        session.apply(replace(training.hello(), rank=rank, pid=6022), 0)
        assert session.hello is not None
        log.message(session.hello, session)
        for _ in range(80):
            feed.advance(0.1)
            frame = session.frame
            assert isinstance(frame, Frame)
            log.message(frame, session)
        log.end(End(BEGUN_NS + 8 * SECOND, exception="ValueError" if number else None))
        log.close()
    main.close()
    return path


@pytest.mark.parametrize("rank", [None, 0])
def test_several_trainings_are_replayed_as_they_were_watched(rank: Optional[int], tmp_path: pathlib.Path) -> None:
    """GIVEN processes of two trainings on two machines, THEN both are there, by their machines and pids."""
    sides = Side("b", 1, frozenset(["b process 6022 7"])), Side("a", 0, frozenset(["a process 6022 9"]))
    path = trainings(tmp_path, *sides, rank=rank)
    logs = rank_logs(path)
    assert len({log.path for log in logs}) == 2
    replay = RanksReplay(logs)
    asyncio.run(replay.start())
    assert replay.several
    view = build_ranks(replay.members, replay.now_ns(), replay.driver, replay.label)
    assert (view.apart, view.program) == (True, "several trainings")
    assert [row.name for row in view.rows] == ["a/6022", "b/6022"]  # as they were asked for
    asyncio.run(replay.stop())
    command = [sys.executable, "-m", "memtui", "open", path, "--headless"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    *lines, first, last = done.stdout.splitlines()
    assert len(lines) >= 7
    assert all(" · 2 processes · " in line or line.startswith("a/6022 ended: ValueError") for line in lines)
    assert first.startswith("a/6022: ValueError")
    assert last.startswith("b/6022: finished")
    assert "This is a/6022 of 2, which failed first" in reported(path).stdout
    assert json.loads(reported(path, "--json").stdout)["rank"] is None


def test_logs_without_numbers_that_do_not_say_more(tmp_path: pathlib.Path) -> None:
    """As memtui wrote them once: nobody has numbered the processes, so they are of several trainings."""
    replay = RanksReplay(rank_logs(trainings(tmp_path, None, None)))
    asyncio.run(replay.start())
    assert replay.several
    assert [member.name for member in replay.members] == ["process 6022"] * 2
    asyncio.run(replay.stop())


def test_processes_of_one_training_keep_their_ranks(tmp_path: pathlib.Path) -> None:
    """GIVEN ranks on two machines with a mark in common, THEN they are ranks, and have their machines' names."""
    job = frozenset(["at 10.0.0.1:29500"])
    logs = rank_logs(written(tmp_path, 2, 3))
    told = [log._replace(side=Side(host, place, job)) for place, (host, log) in enumerate(zip("ba", logs))]
    replay = RanksReplay(told)
    asyncio.run(replay.start())
    assert [(member.name, member.host) for member in replay.members] == [("rank 0", "b"), ("rank 1", "a")]
    assert replay.label == ""
    asyncio.run(replay.stop())


def test_a_machine_s_name_in_a_log_is_shown_as_text(tmp_path: pathlib.Path) -> None:
    """A log is a file from anybody."""
    path = tmp_path / "run.jsonl"
    line = {
        "kind": "rank",
        "time_ns": 1,
        "life": 1,
        "pid": 2,
        "file": "a.jsonl",
        "host": "\x1b[2Jb",
        "spot": "x",
        "job": 3,
    }
    path.write_text(json.dumps(line, separators=(",", ":")) + "\n")
    (log,) = rank_logs(str(path))
    assert "\x1b" not in log.side.host
    assert (log.side.spot, log.side.job) == (0, frozenset())


def test_all_ranks_are_replayed_together(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path)
    logs = rank_logs(path)
    assert [(log.rank, log.life, log.pid) for log in logs] == [(0, 1, 4242), (1, 1, 4243), (2, 1, 4244)]

    async def run() -> RanksReplay:
        replay = RanksReplay(logs)
        await replay.start()
        return replay

    replay = asyncio.run(run())
    assert replay.several
    view = build_ranks(replay.members, replay.now_ns(), replay.driver)
    assert [row.rank for row in view.rows] == [0, 1, 2]
    odd = next(finding for finding in view.findings if finding.key == "batches")
    assert odd.ranks == (2,)
    steps = [row.step for row in view.rows]
    replay.seek(BEGUN_NS + 5 * SECOND)
    earlier = build_ranks(replay.members, replay.now_ns(), replay.driver)
    assert [row.step for row in earlier.rows] == [3, 3, 3]
    assert steps == [7, 7, 7]
    asyncio.run(replay.stop())


def test_a_missing_file_leaves_the_others(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path)
    (tmp_path / "run.rank-1.jsonl").unlink()
    replay = RanksReplay(rank_logs(path))
    asyncio.run(replay.start())
    assert [member.rank for member in replay.members] == [0, 2]
    assert "run.rank-1.jsonl" in replay.session.notices["log"]
    asyncio.run(replay.stop())
    for name in ("run.rank-0.jsonl", "run.rank-2.jsonl"):
        (tmp_path / name).unlink()
    with pytest.raises(LogError):
        RanksReplay(rank_logs(path))


@pytest.mark.parametrize("name", ["../other.jsonl", "/etc/passwd", "", "..", "a/b.jsonl", 7])
def test_a_log_names_files_in_its_own_folder_only(name: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.jsonl"
    line = {"kind": "rank", "time_ns": 1, "rank": 0, "life": 1, "pid": 2, "file": name}
    path.write_text(json.dumps(line, separators=(",", ":")) + "\n")
    assert rank_logs(str(path)) == []


def test_lines_of_a_replay(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, 2, 8)
    command = [sys.executable, "-m", "memtui", "open", path, "--headless"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(" · 2 ranks · " in line or "rank 1 holds" in line for line in lines)
    assert any(line.startswith("rank 1 holds") for line in lines)


def test_the_overview_goes_back_in_time(tmp_path: pathlib.Path) -> None:
    replay = RanksReplay(rank_logs(written(tmp_path)))

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        while app.overview is None or app.screen is not app.overview:
            await pilot.pause(0.05)
        await pilot.pause(0.1)
        clock = re.search(r"REPLAY \d\d:\d\d:\d\d", text(app)[0])
        assert clock is not None
        before = replay.now_ns()
        await pilot.press("left")
        assert replay.now_ns() == max(replay.start_ns, before - 10 * SECOND)
        await pilot.pause(0.1)
        assert "REPLAY" in text(app)[0]
        assert clock[0] not in text(app)[0]
        await pilot.press("down", "enter")
        await pilot.pause(0.1)
        assert app.screen is app.monitor
        assert "rank 1" in text(app)[0]

    drive(replay, test)


def reported(path: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memtui", "report", path, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_the_report_is_of_the_rank_that_failed_first(tmp_path: pathlib.Path) -> None:
    """GIVEN ranks of which 1 raised and the others went after it, THEN the page is of 1, and names the others' logs."""
    end = BEGUN_NS + 12 * SECOND
    ends = [
        End(end + SECOND, silent=True),
        End(end, exception="OutOfMemoryError", text="CUDA out of memory"),
        End(end + SECOND),
    ]
    path = written(tmp_path, ends=ends)
    done = reported(path)
    assert done.returncode == 0, done.stderr
    head = done.stdout.splitlines()[:5]
    assert "This is rank 1 of 3, which failed first" in head
    assert "ended by OutOfMemoryError" in head
    said = " ".join(done.stdout.split())
    assert f"rank 0: it went without a word, as killed processes do · memtui report {tmp_path}/run.rank-0.jsonl" in said
    assert f"rank 2: finished · memtui report {tmp_path}/run.rank-2.jsonl" in said
    assert json.loads(reported(path, "--json").stdout)["rank"] == 1
    assert "- This is rank 1 of 3, which failed first" in reported(path, "--markdown").stdout


def test_the_report_of_ranks_that_finished_is_of_the_first(tmp_path: pathlib.Path) -> None:
    ends = [End(BEGUN_NS + 12 * SECOND)] * 2
    said = reported(written(tmp_path, 2, ends=ends)).stdout
    assert "This is rank 0 of 2: none of them failed" in said
    assert "rank 1: finished" in said
    for name in ("run.rank-0.jsonl", "run.rank-1.jsonl"):
        (tmp_path / name).unlink()
    done = reported(str(tmp_path / "run.jsonl"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "run.rank-0.jsonl" in done.stderr
