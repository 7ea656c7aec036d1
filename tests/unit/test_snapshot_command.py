"""`memtui open` of a memory snapshot: what is printed and written."""

from __future__ import annotations

import csv
import io
import json
import pathlib

import pytest

from memtui.cli import main
from tests.support import snapshots as made
from tests.support.snapshots import MIB

_PAGE = """\
snapshot train.pickle, cuda:0

                           at the peak      at the end
allocated                     40.0 MiB        38.0 MiB
reserved                      52.0 MiB        52.0 MiB
largest free block            10.0 MiB        12.0 MiB
peak of allocated while recorded: 40.0 MiB at event 3 of 9, at 0.0 ms
recorded: 9 events in 0.1 ms; what was before is known by the end alone

live at the peak, by what the stacks tell
  forward                     10.0 MiB   25 %        2 blocks
  before the recording        30.0 MiB   75 %         1 block

by the line that allocated it
     30.0 MiB  75 %        1 block  before the recording
     10.0 MiB  25 %       2 blocks  model.py:7 forward

out of memory
  event 9, at 0.1 ms: 1.0 GiB asked for, 3.0 MiB free on the device
    38.0 MiB allocated of 52.0 MiB reserved, largest free block 12.0 MiB
    model.py:7 forward

note: what was allocated before the recording, or dropped from it, has no stack
note: figures before the end are derived: events tell what was asked for, the
  end what the allocator gave
"""


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    return made.write(tmp_path / "train.pickle", made.training())


def test_the_page(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", path]) == 0
    assert capsys.readouterr().out == _PAGE


def test_another_instant(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", path, "--at", "40us"]) == 0
    page = capsys.readouterr().out
    assert "live at event 6 of 9" in page
    assert page.splitlines()[3].split() == ["allocated", "30.0", "MiB", "38.0", "MiB"]


def test_the_timeline_as_csv(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", path, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [int(row["allocated_bytes"]) // MIB for row in rows] == [30, 30, 34, 40, 36, 36, 30, 30, 38, 38]
    assert rows[3] == {
        "event": "3",
        "time_us": "20",
        "allocated_bytes": str(40 * MIB),
        "reserved_bytes": str(52 * MIB),
    }


def test_everything_as_json(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["peak"]["allocated_bytes"] == told["instant"]["allocated_bytes"] == 40 * MIB
    assert told["devices"][0]["largest_free_bytes"] == 12 * MIB
    assert told["out_of_memory"][0]["requested_bytes"] == 1 << 30
    assert [each["state"] for segment in told["segments"] for each in segment["blocks"]] == ["live", "free"] * 2
    assert told["instant"]["largest"][1]["stack"] == [
        "train.py:3 <module>",
        "module.py:1794 _call_impl",
        "model.py:7 forward",
    ]


def test_folded_stacks_are_written(path: str, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out.folded"
    assert main(["open", path, "--stacks", str(out)]) == 0
    assert out.read_text(encoding="utf-8").splitlines() == [
        f"before the recording {30 * MIB}",
        f"train.py:3 <module>;module.py:1794 _call_impl;model.py:7 forward {10 * MIB}",
    ]


@pytest.mark.parametrize("other", ["peak", "another"])
def test_what_is_different(path: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], other: str) -> None:
    """From an instant of the same snapshot, or the end of another, which is the same here."""
    if other == "another":
        told = made.training()
        blocks = made.segment(40 * MIB, made.block(10 * MIB, "active_allocated", made.FORWARD), made.block(10 * MIB))
        other = made.write(tmp_path / "other.pickle", made.raw([told["segments"][0], blocks], []))
    assert main(["open", path, "--diff", other]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["allocated", "40.0", "MiB", "38.0", "MiB", "-2.0", "MiB"] in [line.split() for line in lines]
    assert "-10.0 MiB" in next(line for line in lines if line.endswith("model.py:7 forward"))
    assert "+8.0 MiB" in next(line for line in lines if line.endswith("train.py:5 <module>"))
    assert main(["open", path, "--diff", other, "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert [each["change_bytes"] for each in changes] == [-10 * MIB, 8 * MIB]


def test_nothing_in_a_snapshot_acts_on_the_terminal(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = [made.frame("/x/\x1b[31ma;\n.py", 3, "\x1b]0;title\x07evil\u202e")]
    segments = [made.segment(0, made.block(MIB, "active_allocated", frames))]
    path = made.write(tmp_path / "\x1b[2Jx.pickle", made.raw(segments, []))
    assert main(["open", path]) == 0
    assert main(["open", path, "--at", "\x1b[2J"]) == 1
    told = capsys.readouterr()
    assert "a: .py:3 evil" in told.out
    assert not set("\x1b\x07\u202e") & set(told.out + told.err)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("--at 99", 1, "there is no event 99: the last one is 9"),
        ("--at soon", 1, "'soon' is no instant: write an event's number, a time as 1.2s, start, peak or end"),
        ("--device cuda:3", 1, "cuda:3 is not in train.pickle: --device cuda:0"),
        ("--diff gone.pickle", 1, "cannot read gone.pickle: No such file"),
        ("--diff peak --csv", 2, "--diff is printed as a table or with --json"),
        ("--html out.html --at 3", 2, "--html is of the whole snapshot"),
        ("--html /nowhere/out.html", 1, "cannot write /nowhere/out.html: there is no folder /nowhere"),
        ("--at 99s", 1, "there is no event at 99s: the last one is at 0.1 ms"),
        ("--diff 99s", 1, "there is no event at 99s: the last one is at 0.1 ms"),
        ("--stacks kept.folded", 1, "kept.folded is there already: name another file, or say --overwrite"),
        ("--html kept.folded", 1, "kept.folded is there already: name another file, or say --overwrite"),
        ("--stacks train.pickle --overwrite", 1, "train.pickle is the snapshot itself: name another file to write"),
        ("--stacks train.pickle", 1, "train.pickle is the snapshot itself: name another file to write"),
        ("--stacks /nowhere/out", 1, "cannot write /nowhere/out: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, status: int, said: str
) -> None:
    monkeypatch.chdir(pathlib.Path(path).parent)
    kept = pathlib.Path("kept.folded")
    kept.write_text("somebody's\n")
    assert main(["open", "train.pickle", *words.split()]) == status
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert said in told.err
    assert kept.read_text() == "somebody's\n"


def test_a_file_is_replaced_where_that_is_wanted(path: str, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out.folded"
    out.write_text("old")
    assert main(["open", path, "--stacks", str(out), "--overwrite"]) == 0
    assert out.read_text(encoding="utf-8").startswith("before the recording")


def test_the_time_of_the_last_event_may_be_read_rounded(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """GIVEN a last event at 80 µs, which is printed as 0.1 ms, THEN that names it."""
    assert main(["open", path, "--at", "0.1ms"]) == 0
    assert "live at the end" in capsys.readouterr().out


def test_options_of_snapshots_are_not_for_logs(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.log").write_text("{}\n")
    assert main(["open", str(tmp_path / "run.log"), "--csv"]) == 2
    assert "--csv is for memory snapshots" in capsys.readouterr().err
    assert main(["open", str(tmp_path / "run.log")]) == 1
    assert "is not a memtui log" in capsys.readouterr().err
