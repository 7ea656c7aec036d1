"""An allocator history on its way: in parts through the agent's socket, and into a file of its own."""

from __future__ import annotations

import copy
import gzip
import os
import pathlib
import pickle
import signal
import stat
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.agent.history_parts import HistoryParts
from memtui.sources.history_taker import HistoryTaker
from memtui.sources.snapshot_file import SnapshotFile, free_name
from memtui.wire import codec
from memtui.wire.histories import HistoryPart
from tests.support import snapshots as made

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def parts(told: dict[str, Any]) -> list[HistoryPart]:
    """What the agent sends of a snapshot, which it empties."""
    splitter = codec.Splitter()
    messages = [message for message in HistoryParts(copy.deepcopy(told)).messages() if message is not None]
    return [codec.decode(body) for body in splitter.feed(b"".join(messages))]


def together(sent: list[HistoryPart]) -> dict[str, Any]:
    taker = HistoryTaker()
    for part in sent:
        taker.take(part)
    return taker.snapshot()


@pytest.mark.parametrize("told", [made.layered(), made.training(), made.layered(layers=60, steps=6), made.raw([], [])])
def test_what_is_sent_comes_together_again(told: dict[str, Any]) -> None:
    sent = parts(told)
    assert together(sent) == told
    assert all(len(part.rows) <= 768 for part in sent)


_PLAIN = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=8)
_STACKS = st.lists(
    st.fixed_dictionaries({"name": st.text(max_size=4), "filename": st.text(max_size=4), "line": st.integers(0, 9)}),
    max_size=4,
)
_EVENTS = st.dictionaries(st.text(max_size=6), _PLAIN | st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=4)
_WITH_STACKS = st.builds(lambda event, stack: {**event, "frames": stack}, _EVENTS, _STACKS)


_LISTS = st.lists(st.lists(_WITH_STACKS, max_size=9), max_size=4)


@given(_LISTS, _LISTS)
def test_whatever_torch_may_tell_comes_as_it_is(traces: list[Any], blocks: list[Any]) -> None:
    segments = [{"address": number, "blocks": each, "frames": []} for number, each in enumerate(blocks)]
    for block in [block for each in blocks for block in each] + [entry for each in traces for entry in each]:
        block.pop("blocks", None)
    told = {"segments": segments, "device_traces": traces, "allocator_settings": {"a": {"b": 1}}}
    assert together(parts(told)) == told


def test_parts_that_do_not_fit_are_refused() -> None:
    sent = parts(made.layered())
    with pytest.raises(ValueError, match="without an end"):
        together(sent[:-1])
    for part in (
        HistoryPart("trace", 0, rows=((99, 1),)),
        HistoryPart("trace", 0, rows=((0, 1),)),
        HistoryPart("trace", 0, rows=(7,)),
        HistoryPart("trace", 0, shapes=(("frames",),), rows=((len(sent) * 9, 99),)),
        HistoryPart("trace", 0, stacks=((12_345,),)),
        HistoryPart("segments", shapes=(("size",),), rows=((0, 1),)),
        HistoryPart("rest"),
        HistoryPart("rest", rows=(5,)),
    ):
        with pytest.raises(ValueError, match="does not fit"):
            together([part])
    with pytest.raises(ValueError, match="without an end"):
        together([HistoryPart("rest", rows=({"device_traces": 1 << 40},))])
    with pytest.raises(ValueError, match="without an end"):
        together([HistoryPart("trace", 5, rows=()), HistoryPart("rest", rows=({"device_traces": 1},))])


def test_a_strange_snapshot_is_an_error_that_the_sender_knows() -> None:
    for told in ({}, {"segments": 5, "device_traces": []}, {"segments": [], "device_traces": [[object()]]}):
        with pytest.raises((LookupError, TypeError, ValueError, AttributeError)):
            list(HistoryParts(told).messages())


def test_a_file_is_private_whole_and_in_nobodys_place(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "made.pickle"
    with SnapshotFile(str(path)) as file:
        assert not path.exists()
        assert file.write(made.training()) == path.stat().st_size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert pickle.loads(path.read_bytes()) == made.training()
    with pytest.raises(FileExistsError), SnapshotFile(str(path)):
        pass
    with SnapshotFile(str(path), overwrite=True) as file:
        file.write({"segments": []})
    assert pickle.loads(path.read_bytes()) == {"segments": []}
    assert os.listdir(tmp_path) == ["made.pickle"]


def test_what_fails_leaves_everything_as_it_was(tmp_path: pathlib.Path) -> None:
    path, other = tmp_path / "a.pickle", tmp_path / "elsewhere"
    with pytest.raises(RuntimeError), SnapshotFile(str(path)):
        raise RuntimeError
    with pytest.raises(IsADirectoryError), SnapshotFile(str(tmp_path), overwrite=True):
        pass
    with pytest.raises(FileNotFoundError), SnapshotFile(str(tmp_path / "none" / "a.pickle")):
        pass
    with SnapshotFile(str(path)) as file:
        path.write_text("somebody's, meanwhile")
        with pytest.raises(FileExistsError):
            file.write({})
    assert path.read_text() == "somebody's, meanwhile"
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(FileExistsError), SnapshotFile(str(path)):
        pass
    assert not other.exists()
    assert os.listdir(tmp_path) == ["a.pickle"]


def test_a_gzipped_one(tmp_path: pathlib.Path) -> None:
    with SnapshotFile(str(tmp_path / "made.pickle.gz")) as file:
        file.write(made.training())
    assert pickle.loads(gzip.decompress((tmp_path / "made.pickle.gz").read_bytes())) == made.training()


def test_a_free_name(tmp_path: pathlib.Path) -> None:
    for name in ("memtui-7.pickle", "memtui-7-2.pickle", "memtui-7-3.pickle"):
        path = free_name(str(tmp_path), "memtui-7")
        assert path == str(tmp_path / name)
        pathlib.Path(path).touch()


def test_lists_of_frames_are_told_apart() -> None:
    """More of them than are remembered, shared by events and not, with the same frames and with others."""
    frames = [made.frame("/home/me/train.py", line, "step") for line in range(50)]
    lists = [frames[number % 40 : number % 40 + 10] for number in range(5_000)]
    events = [made.event("alloc", number << 12, 512, number) for number in range(10_000)]
    for number, event in enumerate(events):
        event["frames"] = lists[(number * 7) % len(lists)]
    told = made.raw([], events)
    assert together(parts(told)) == told


_KILLED = """
import os, signal, sys
from memtui.sources.snapshot_file import SnapshotFile
with SnapshotFile(sys.argv[1], overwrite=True):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system knows no files without a name")
def test_a_viewer_that_is_killed_leaves_no_file(tmp_path: pathlib.Path) -> None:
    try:
        os.close(os.open(tmp_path, os.O_RDWR | os.O_TMPFILE, 0o600))
    except OSError:
        pytest.skip("the file system of the tests knows no files without a name")
    (tmp_path / "made.pickle").write_text("before")
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path / "made.pickle")], cwd=_ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == ["made.pickle"]
    assert (tmp_path / "made.pickle").read_text() == "before"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_system_without_nameless_files(
    overwrite: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hidden one is written then, and is gone where nothing came of it."""
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path = tmp_path / "made.pickle"
    with SnapshotFile(str(path), overwrite=overwrite):
        (hidden,) = os.listdir(tmp_path)
        assert hidden.startswith(".made.pickle.")
    assert os.listdir(tmp_path) == []
    with SnapshotFile(str(path), overwrite=overwrite) as file:
        size = file.write({"segments": []})
    assert os.listdir(tmp_path) == ["made.pickle"]
    assert pickle.loads(path.read_bytes()) == {"segments": []}
    assert path.stat().st_size == size
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_snapshot_is_called_one() -> None:
    command = [sys.executable, "-m", "memtui", "record", "--pid", "1", "--output", "a/foo.txt"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "memtui: a snapshot's name ends in .pickle or .pickle.gz: --output a/foo.pickle\n"
