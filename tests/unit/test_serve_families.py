"""What is exposed of ranks and devices, from sessions that are made up."""

from __future__ import annotations

import os
import pathlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

from memtui.serve import families, figures
from memtui.serve.life import life_of
from memtui.serve.rank import Rank
from memtui.serve.stream import AgentStream
from memtui.session.readings import DeviceReading, OtherProcess
from memtui.wire.frames import Classification, Device, DeviceFrame, Frame, Hello

_GIB = 1 << 30
_SECOND = 1_000_000_000
_HELLO = Hello(1, "1", 1, "3.11", "2.9", ("/x/train.py",), "/", "box", 0, 5 * _SECOND, 0)


@pytest.fixture
def rank(tmp_path: pathlib.Path) -> Iterator[Rank]:
    """A rank of this very process, whose agent says nothing."""
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        life = life_of(os.getpid())
        assert life is not None
        found = Rank(os.getpid(), path, AgentStream(path), life)
        found.session.apply(_HELLO, 0)
        yield found
        found.close()


def frame(sequence: int, time_ns: int, *devices: DeviceFrame) -> Frame:
    return Frame(sequence, time_ns, 0, sequence, "forward", time_ns, devices)


def samples(found: list[Any], name: str) -> list[Any]:
    return [each for family in found for each in family.samples if each.name == f"memtui_{name}"]


def exposed(*ranks: Rank) -> tuple[list[Any], int]:
    told = families.Ranks()
    for each in ranks:
        told.add(each, time.monotonic_ns())
    return told.families(), told.left_out


def test_the_window_has_peaks_between_frames_and_forgets_them(rank: Rank) -> None:
    """GIVEN a counter that rose between two frames, THEN that is the window's peak for a minute, and no longer."""
    now = time.monotonic_ns()
    for sequence, age, peak in ((1, 100, 3), (2, 99, 7), (3, 30, 7), (4, 0, 7)):
        counted = DeviceFrame("cuda:0", allocated_bytes=2 * _GIB, allocated_peak_bytes=peak * _GIB)
        rank.session.apply(frame(sequence, now - age * _SECOND, counted), 0)
    at = {
        age: figures.gauges(rank, "cuda:0", now - age * _SECOND)["allocated_window_peak_bytes"] for age in (98, 45, 0)
    }
    assert at == {98: 7 * _GIB, 45: 7 * _GIB, 0: 2 * _GIB}


def test_unknown_figures_are_absent(rank: Rank) -> None:
    rank.session.apply(frame(1, time.monotonic_ns(), DeviceFrame("cuda:0", allocated_bytes=1)), 0)
    found, _ = exposed(rank)
    assert [each.value for each in samples(found, "allocated_bytes")] == [1]
    for name in (
        "reserved_bytes",
        "ooms_total",
        "process_device_bytes",
        "allowed_bytes",
        "category_bytes",
        "steps_left",
    ):
        assert samples(found, name) == []


def test_categories_of_a_newer_agent_are_unattributed(rank: Rank) -> None:
    looked = Classification(0, 10, "forward", 1, {"parameters": 4, "of the future": 5, "unattributed": 1})
    device = DeviceFrame("cuda:0", allocated_bytes=12, classification=looked)
    rank.session.apply(frame(1, time.monotonic_ns(), device), 0)
    found, _ = exposed(rank)
    told = {each.labels["category"]: each.value for each in samples(found, "category_bytes")}
    assert (told["parameters"], told["unattributed"], sum(told.values())) == (4, 8, 12)


def test_devices_that_look_alike_and_too_many_are_left_out(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN two devices of one cleaned name, THEN no series is there twice; and beyond the most, none."""
    devices = tuple(DeviceFrame(name, allocated_bytes=1) for name in ("cuda:0", "cuda:0\x1b[0m", "cuda:1"))
    rank.session.apply(frame(1, time.monotonic_ns(), *devices), 0)
    found, left_out = exposed(rank)
    assert [each.labels["device"] for each in samples(found, "allocated_bytes")] == ["cuda:0", "cuda:1"]
    assert left_out == 1
    monkeypatch.setattr(families, "MOST_EXPOSED", 1)
    found, left_out = exposed(rank)
    assert [each.labels["device"] for each in samples(found, "allocated_bytes")] == ["cuda:0"]
    assert left_out == 2


def test_a_uuid_is_written_as_the_driver_does(rank: Rank) -> None:
    for uuid, label in (("5f2c", "GPU-5f2c"), ("GPU-5f2c", "GPU-5f2c"), ("MIG-9", "MIG-9"), (None, "")):
        device = Device("cuda:0", "cuda", "A100", "caching allocator", uuid=uuid)
        rank.session.hello = Hello(**{**_HELLO.__dict__, "devices": (device,)})
        rank.session.apply(frame(1, time.monotonic_ns(), DeviceFrame("cuda:0", allocated_bytes=1)), 0)
        [sample] = samples(exposed(rank)[0], "allocated_bytes")
        assert sample.labels["device_uuid"] == label


def test_what_others_hold_is_absent_where_one_of_them_is_not_known() -> None:
    known = (OtherProcess(1, 5, "a"), OtherProcess(2, 7, "b"))
    for others, watched, bytes_held in (
        (known, (), [12]),
        (known, (2,), [5]),
        ((*known, OtherProcess(3, None, "c")), (2,), []),
        ((*known, OtherProcess(3, None, "c")), (3,), [12]),
        (None, (), []),
    ):
        reading = DeviceReading("GPU-1", 0, index=0, name="A100", total_bytes=100, others=others)
        found = families.devices([reading], watched)
        assert [each.value for each in samples(found, "device_other_bytes")] == bytes_held
        assert [each.value for each in samples(found, "device_total_bytes")] == [100]
        assert samples(found, "device_used_bytes") == []
