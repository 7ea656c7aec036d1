"""Files that are no memory snapshots, or not whole, or meant to do harm: each in words, and nothing in them runs."""

from __future__ import annotations

import collections
import gc
import gzip
import os
import pathlib
import pickle
import struct
import subprocess
import sys
from typing import Any

import pytest

from memtui.snapshots.errors import SnapshotError
from memtui.snapshots.reading import load
from tests.support import snapshots as made

_GIB = 1 << 30


class _Command:
    """What runs a command when it is unpickled."""

    def __init__(self, marker: pathlib.Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._marker}",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_names_a_function_is_refused_and_runs_nothing(tmp_path: pathlib.Path, protocol: int) -> None:
    marker = tmp_path / "ran"
    told = {**made.training(), "external_annotations": [_Command(marker)]}
    path = made.write(tmp_path / "evil.pickle", told, protocol)
    with pytest.raises(SnapshotError, match=r"no memory snapshot" if protocol < 2 else r"names (posix|nt)\.system"):
        load(path, _GIB)
    assert not marker.exists()
    pickle.loads(pathlib.Path(path).read_bytes())
    assert marker.exists()  # it would have


def test_harmless_classes_are_refused_too(tmp_path: pathlib.Path) -> None:
    path = made.write(tmp_path / "ordered.pickle", collections.OrderedDict(made.training()))
    with pytest.raises(SnapshotError, match=r"names collections\.OrderedDict"):
        load(path, _GIB)


def _whole(protocol: int = 4) -> bytes:
    return pickle.dumps(made.training(), protocol)


#: Each would take the memory of a large machine, or end the interpreter, in a few bytes.
_BOMBS = {
    "tuples in tuples as a key": b"\x80\x02}N" + b"\x85" * 300_000 + b"Ns.",
    "a key whose hash doubles with each of 60 levels": b"\x80\x02}N\x85q\x00"
    + b"".join(bytes((0x68, n, 0x68, n, 0x86, 0x71, n + 1)) for n in range(60))
    + b"Ns.",
    "pairs of numbers and then of pairs": b"\x80\x02}K\x00K\x00\x86q\x00h\x00\x86.",
    "an entry of the memo at 2 billion": b"\x80\x02]r\xff\xff\xff\x7f.",
    "one at 16 million": b"\x80\x02]r\x00\x00\xff\x00.",
    "a text of 2 GiB": b"\x80\x04X\xff\xff\xff\x7fabc.",
    "bytes of 1 TiB": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b".",
    "a bytearray of 1 TiB": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",
    "a frame of 1 TiB": b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"}.",
    "an entry at 2 billion that is a text to who reads across a frame's end": b"\x80\x04\x95"
    + struct.pack("<Q", 4)
    + b"]J\x00\x00\x00\x00\x8c\x05r\xff\xff\xff\x7f.",
    "a frame in a frame": b"\x80\x04\x95" + struct.pack("<Q", 11) + b"]\x95" + struct.pack("<Q", 1) + b"N.",
    "a number of 2 billion bytes": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "a persistent object": b"\x80\x02NQ.",
    "an extension": b"\x80\x02\x82\x01.",
}


@pytest.mark.parametrize("name", _BOMBS)
def test_what_no_snapshot_holds_is_refused_before_it_is_built(tmp_path: pathlib.Path, name: str) -> None:
    """In a process of its own, with little memory: it would be the test's end."""
    path = tmp_path / "bomb.pickle"
    path.write_bytes(_BOMBS[name])
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (30, 30))\n"
        "from memtui.snapshots.errors import SnapshotError\n"
        "from memtui.snapshots.reading import load\n"
        "try:\n    load(sys.argv[1], 1 << 30)\n"
        "except SnapshotError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "bomb.pickle" in done.stdout
    assert "no memory snapshot" in done.stdout or "refused, nothing of it ran" in done.stdout


def test_what_takes_much_more_memory_than_its_size_says_is_given_up(tmp_path: pathlib.Path) -> None:
    """Empty dicts are one byte each in the file, and 64 in memory."""
    path = tmp_path / "dicts.pickle"
    path.write_bytes(b"\x80\x02](" + b"}" * 4_000_000 + b"e.")
    with pytest.raises(SnapshotError, match=r"takes more than 79\.3 MiB of memory, which is too much for its size"):
        load(str(path), _GIB)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty: the snapshot was not written"),
        (b"\x80", "no pickle"),
        (b"hello\n", "no pickle of protocol 2 or later"),
        (b"PK\x03\x04", "a zip file, as torch.save writes them"),
        (b"\x80\x09}.", "a pickle of protocol 9: this memtui reads 2 to 5"),
        (_whole()[:900], "cut off after 900 bytes"),
        (_whole()[:-1], "cut off"),
        (_whole(2)[:700], "cut off after 700 bytes"),
        (gzip.compress(_whole())[:-30], "gzip file that is cut off or damaged"),
        (gzip.compress(_whole()[:500]), "cut off after 500 bytes"),
        (gzip.compress(b""), "is empty"),
        (pickle.dumps([]), "of no memory: nothing was allocated"),
        (pickle.dumps(5), "it has no segments"),
        (pickle.dumps({"a": 1}), "it has no segments"),
        (pickle.dumps({"segments": 3}), "segments should be a list"),
        (pickle.dumps({"segments": [3]}), "a segment is no dict"),
        (pickle.dumps({"segments": [{"address": 1}]}), "a segment has no total_size"),
        (pickle.dumps({"segments": [{"total_size": "big"}]}), "a segment's total_size is no size"),
        (
            pickle.dumps({"segments": [{"total_size": 1, "blocks": [{}]}]}),
            "a block is in a state that is not known, ''",
        ),
        (pickle.dumps({"segments": [], "device_traces": [[]] * 2000}), "traces of 2,000 devices"),
        (b"\x80\x02NNNs.", "cannot be put together"),
        (b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".", "no memory snapshot"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    from memtui.cli import main

    path = tmp_path / "some.pickle"
    path.write_bytes(content)
    assert main(["open", str(path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert told.err.startswith("memtui: ")
    assert told.err.count("\n") == 1


def test_a_file_that_would_not_fit_is_refused_with_what_it_needs(tmp_path: pathlib.Path) -> None:
    """The same by its size, by what is in it, and as a gzip file that says nothing of its size."""
    event = made.event("alloc", 0, 1, 0)
    path = tmp_path / "large.pickle"
    made.write(path, made.raw([made.segment(0, made.block(512))], [dict(event) for _ in range(20_000)]))
    with pytest.raises(SnapshotError, match=r"needs some \d+\.\d MiB of memory and 5\.0 MiB are there: open it on"):
        load(str(path), 5 << 20)
    with pytest.raises(SnapshotError, match=r"needs some 1\.\d MiB or more of memory and 1\.0 MiB are there"):
        load(str(path), 1 << 20)
    (tmp_path / "large.pickle.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(SnapshotError, match=r"or more of memory and 1\.0 MiB are there"):
        load(str(tmp_path / "large.pickle.gz"), 1 << 20)
    assert len(load(str(path), _GIB)["device_traces"][0]) == 20_000


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_file_of_many_pieces_is_read_as_pickle_reads_it(tmp_path: pathlib.Path, protocol: int) -> None:
    """Across the ends of what is checked at once, with texts and numbers of every length, and collecting as before."""
    texts = ["x" * length for length in (0, 1, 254, 256)]
    numbers = [0, 255, 256, 65_536, -1, 1 << 31, 1 << 40, 1 << 63, -(1 << 62)]
    pools = [(0, 0), (0, 300), (300, 0), (7, 255)]
    texts[0] = "y" * 200
    told = [
        {"t": texts[n % 4] * (1 if n % 400 else 300) + str(n), "n": numbers[n % 9], "p": pools[n % 4], "f": 1.5 * n}
        for n in range(30_000)
    ]
    path = made.write(tmp_path / "pieces.pickle", told, protocol)
    assert os.path.getsize(path) > 2 * (4 << 20)
    gc.enable()
    assert load(path, 8 * _GIB) == told
    assert gc.isenabled()
