"""Pickles are written in frames, which may end anywhere between two operations."""

from __future__ import annotations

import io
import pathlib
import pickle
import re

import pytest

from memtui.snapshots.errors import SnapshotError
from memtui.snapshots.opcodes import check
from memtui.snapshots.reading import load


def _made(padding: int) -> dict[str, object]:
    event = {"action": "alloc", "size": 1024, "stream": 0, "frames": []}
    trace = [{**event, "addr": 1 << 40 | number, "pool_id": (number % 200, 300)} for number in range(12_000)]
    return {"padding": "x" * padding, "segments": [], "device_traces": [trace]}


def test_python_ends_a_frame_within_a_pair(tmp_path: pathlib.Path) -> None:
    """GIVEN a file whose frame ends between the two numbers of a pair, THEN it is read."""
    path, cut = tmp_path / "made.pickle", re.compile(b"(?s:\\x95.{6}\\x00\\x00M..\\x86)")
    for padding in range(200):
        written = pickle.dumps(_made(padding), 4)
        if cut.search(written):
            path.write_bytes(written)
            assert load(str(path), 1 << 40) == _made(padding)
            return
    pytest.fail("no file is cut there")


def _framed(*parts: bytes) -> io.BytesIO:
    frames = (b"\x95" + len(part).to_bytes(8, "little") + part for part in parts)
    return io.BytesIO(b"\x80\x04" + b"".join(frames))


@pytest.mark.parametrize(
    "parts", [(b"K\x01K\x02", b"\x86."), (b"K\x01", b"M\x02\x03\x86."), (b"M\x01\x01K\x02", b"\x86.")]
)
def test_small_numbers_are_paired_across_frames(parts: tuple[bytes, ...]) -> None:
    check(_framed(*parts), "it", 100)


@pytest.mark.parametrize(
    "parts", [(b"]]", b"\x86."), (b"K\x01]", b"\x86."), (b"JK\x01K\x02", b"\x86."), (b"]", b"K\x01\x86.")]
)
def test_nothing_else_is(parts: tuple[bytes, ...]) -> None:
    """GIVEN a pair of other things, begun in one frame and made in the next, THEN nothing of it is built."""
    with pytest.raises(SnapshotError, match="operation 0x86"):
        check(_framed(*parts), "it", 100)
