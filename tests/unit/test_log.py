"""A log: what it says, and the session that comes back from it."""

from __future__ import annotations

import asyncio
import json
import pathlib
import time
from typing import Any

import pytest

from memtui.analysis.build import build_view
from memtui.session.readings import DriverReading, HostReading, OtherProcess
from memtui.session.session import End
from memtui.sources.log_format import LogError
from memtui.sources.log_reader import LogReader, open_log
from memtui.sources.log_writer import LogWriter
from memtui.sources.replay import Replay
from memtui.wire.frames import Bye, Event, Tensor, Tensors
from tests.support.sessions import GIB, MIB, SECOND, Run, blocks, classified, hello


def recorded(path: pathlib.Path, frames: int = 30) -> Run:
    """A run that was written down while it happened."""
    run = Run()
    log = LogWriter(str(path), "0.1.0")
    log.message(hello(time_ns=5), run.session)
    event = Event("new_peak", 150_000_000, 0, "forward", "cuda:0", {"allocated_peak_bytes": GIB})
    run.session.apply(event, 0)
    log.message(event, run.session)
    run.adam(96 * MIB, state=192 * MIB, steps=1)
    assert run.session.model is not None
    log.message(run.session.model, run.session)
    for number in range(frames):
        allocated = (number + 1) * 100 * MIB
        if number == frames // 2:
            reading = run.driver(9 * GIB, 8 * GIB, OtherProcess(7, GIB, "x"))
            log.reading(DriverReading(reading.time_ns, (reading,), "1.0"))
            log.message(run.session.frame, run.session)  # type: ignore[arg-type]
            host = HostReading(
                run.now_ns, True, GIB, 12.5, "python", ("python", "train.py"), "me", 1.5, 16 * GIB, 8 * GIB
            )
            run.session.apply_host(host)
            log.reading(host)
        run.step = number // 10
        frame = run.frame(
            allocated,
            8 * GIB,
            phase="forward",
            allocated_peak_bytes=allocated,
            classification=classified(allocated - MIB, parameters=96 * MIB, optimizer_state=192 * MIB, age_ns=7),
            blocks=blocks(num_segments=3, inactive_split_bytes=MIB),
        )
        log.message(frame, run.session)
    bye = Bye(run.now_ns, "ValueError", "no")
    run.session.apply(bye, 0)
    log.message(bye, run.session)
    run.session.ended(run.now_ns, 1)
    assert run.session.end is not None
    log.end(run.session.end)
    log.close()
    return run


def lines_of(path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_is_self_contained(tmp_path: pathlib.Path) -> None:
    """Bytes under torch's names, categories that add up, and what the driver said beside them."""
    recorded(tmp_path / "log")
    lines = lines_of(tmp_path / "log")

    frames = [line for line in lines if line["kind"] == "frame"]
    for line in frames:
        device = line["devices"]["cuda:0"]
        assert line["time_ns"] > 0
        assert isinstance(line["wall_time"], float)
        if "categories" in device:
            assert sum(device["categories"].values()) == device["allocated_bytes"]
    assert frames[-1]["devices"]["cuda:0"]["device"] == {
        "total_bytes": 24 * GIB,
        "used_bytes": 9 * GIB,
        "free_bytes": 15 * GIB,
        "driver_reserved_bytes": 0,
        "process_bytes": 8 * GIB,
        "other_process_bytes": GIB,
        "age_ns": frames[-1]["devices"]["cuda:0"]["device"]["age_ns"],
    }
    assert lines[-1]["kind"] == "end"
    assert lines[-1]["exit_status"] == 1
    assert lines[-1]["exception"] == "ValueError"


def test_the_same_view_comes_back(tmp_path: pathlib.Path) -> None:
    """GIVEN a log, THEN its end shows what the live session showed at its end."""
    run = recorded(tmp_path / "log")

    whole = LogReader(str(tmp_path / "log")).whole

    live = build_view(run.session, "cuda:0", run.now_ns)
    again = build_view(whole, "cuda:0", run.now_ns)
    for name in ("bar", "rows", "verdict", "events", "forecast", "fragmentation", "state", "state_text", "program"):
        assert getattr(again, name) == getattr(live, name), name


def test_going_through_time(tmp_path: pathlib.Path) -> None:
    """GIVEN an instant, THEN the session is what it was then, forwards and backwards, with the whole chart."""
    recorded(tmp_path / "log", frames=3000)
    replay = Replay(str(tmp_path / "log"))
    asyncio.run(replay.start())
    assert replay.session.end is not None

    for share in (0.9, 0.1, 0.5, 0.1):
        instant = replay.start_ns + int((replay.end_ns - replay.start_ns) * share)
        replay.seek(instant)
        frame = replay.session.frame
        series = replay.session.series("cuda:0", "allocated_bytes")
        assert frame is not None
        assert instant - 200_000_000 < frame.time_ns <= instant
        assert replay.now_ns() == instant
        assert replay.session.end is None
        assert series is not None
        assert series.last_time_ns == replay.end_ns
    replay.seek(replay.end_ns + 1)
    assert replay.session.end is not None


def test_a_log_that_was_cut_off(tmp_path: pathlib.Path) -> None:
    """GIVEN the viewer was killed in the middle of a line, THEN everything before it is there, and that is told."""
    recorded(tmp_path / "log")
    whole = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(whole[: whole.rindex(b'{"kind":"frame"') + 300])

    session = LogReader(str(tmp_path / "log")).whole

    assert session.frame is not None
    assert session.end is None
    assert session.notices["log"] == "1 line of the log cannot be read; the last one is cut off"


def test_a_broken_line_in_the_middle_is_told(tmp_path: pathlib.Path) -> None:
    """The rest is read."""
    recorded(tmp_path / "log")
    lines = (tmp_path / "log").read_bytes().split(b"\n")
    lines[6] = b'{"kind":"frame","time_ns":400000000,"devices":{"cuda:0":{"allocated_bytes":"many"}}}'
    lines[8] = b"\xff\xfe"
    (tmp_path / "log").write_bytes(b"\n".join(lines))

    session = LogReader(str(tmp_path / "log")).whole

    assert "2 lines" in session.notices["log"]


@pytest.mark.parametrize("content", [b"", b"hello\n", b"{}\n", b"\x80\x04\x95", b'{"format":"other"}\n', b"[1]\n"])
def test_other_files_are_refused(tmp_path: pathlib.Path, content: bytes) -> None:
    """In one line."""
    (tmp_path / "file").write_bytes(content)

    with pytest.raises(LogError, match="is not a memtui log"):
        open_log(str(tmp_path / "file"))


def test_a_log_of_another_version(tmp_path: pathlib.Path) -> None:
    """Says which memtui wrote it."""
    (tmp_path / "file").write_text('{"kind":"log","format":"memtui log","version":99,"written_by":"memtui 9.0"}\n')

    with pytest.raises(LogError, match=r"memtui 9\.0"):
        open_log(str(tmp_path / "file"))


def test_a_log_without_figures(tmp_path: pathlib.Path) -> None:
    """Is told, not shown as an empty run."""
    LogWriter(str(tmp_path / "log"), "0.1.0").close()

    with pytest.raises(LogError, match="holds no figures"):
        LogReader(str(tmp_path / "log"))


def test_the_wall_clock_is_known_without_the_agent(tmp_path: pathlib.Path) -> None:
    """Of a program that ended before an agent spoke there are the viewer's own readings alone."""
    log = LogWriter(str(tmp_path / "log"), "0.1.0")
    now = time.monotonic_ns()
    log.end(End(time_ns=now, exit_status=1))
    log.close()

    reader = LogReader(str(tmp_path / "log"))

    assert reader.whole.hello is None
    assert abs(now + reader.wall_offset_ns - time.time_ns()) < 60 * SECOND
    reader.close()


def test_a_history_written_late_is_put_in_its_place(tmp_path: pathlib.Path) -> None:
    """GIVEN an attach after the fact: readings of now come before frames of then; by time they are in order."""
    recorded(tmp_path / "log")
    head, *rest = (tmp_path / "log").read_bytes().splitlines(keepends=True)
    late = [line for line in rest if b'"kind":"driver"' in line or b'"kind":"host"' in line]
    others = [line for line in rest if line not in late]
    (tmp_path / "log").write_bytes(b"".join([head, others[0], *late, *others[1:]]))

    reader = LogReader(str(tmp_path / "log"))

    early = reader.session_at(reader.start_ns + 500_000_000)
    assert early.driver is None
    assert early.frame is not None


def test_a_full_disk_is_told_and_hurts_nobody() -> None:
    """The log ends, the monitor goes on."""
    if not pathlib.Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    run = Run()
    frame = run.frame(MIB)
    log = LogWriter("/dev/full", "0.1.0")
    for _ in range(2000):
        log.message(frame, run.session)
    log.end(End(run.now_ns, 0))
    log.close()

    assert "No space left" in log.trouble


def test_live_tensors_come_back_as_of_their_time(tmp_path: pathlib.Path) -> None:
    run = Run()
    log = LogWriter(str(tmp_path / "log"), "0.1.0")
    log.message(run.session.hello, run.session)  # type: ignore[arg-type]
    told = []
    for step in range(3):
        log.message(run.frame(GIB), run.session)
        rows = (Tensor("parameters", MIB, "0.weight", (512, 512), "float32"), Tensor("activations", 6 * MIB, count=3))
        told.append(Tensors(run.now_ns + 1, step, "backward", "cuda:0", GIB, rows, 9, GIB - 7 * MIB, 5))
        log.message(told[-1], run.session)
    last = run.frame(GIB)
    log.message(last, run.session)
    log.close()
    reader = LogReader(str(tmp_path / "log"))
    assert reader.session_at(last.time_ns).tensors("cuda:0") == told[2]
    assert reader.session_at(told[1].time_ns).tensors("cuda:0") == told[1]
    assert reader.session_at(told[0].time_ns - 1).tensors("cuda:0") is None
    reader.close()
