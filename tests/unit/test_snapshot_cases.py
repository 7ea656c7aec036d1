"""Real snapshots of public runs, beside the checkout, and the right figures of each."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from memtui.snapshots.model import FREE, PENDING, open_snapshot
from memtui.snapshots.queries import Opened

_FOLDER = pathlib.Path(__file__).resolve().parents[3] / "shared" / "cases" / "snapshots"


def _cases() -> list[dict[str, Any]]:
    index = _FOLDER / "index.json"
    return json.loads(index.read_text(encoding="utf-8")) if index.exists() else []


@pytest.mark.skipif(not _cases(), reason="../shared/cases/snapshots is not there")
@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["file"])
def test_the_figures_are_those_of_the_index(case: dict[str, Any]) -> None:
    snapshot = open_snapshot(str(_FOLDER / case["file"]), 4 << 30)
    assert [each.name for each in snapshot.devices] == [f"cuda:{index}" for index in case["devices"]]
    assert snapshot.notices == ()
    for index, right in case["devices"].items():
        told = Opened(snapshot, snapshot.device(f"cuda:{index}"))
        device, course = told.device, told.course
        assert device.reserved_bytes == right["reserved"]
        assert device.allocated_bytes == right["allocated"]
        assert device.requested_bytes == right["requested"]
        assert device.largest_free_bytes == right["largest_inactive_block"]
        assert device.state_bytes(PENDING) == right["pending_free"]
        assert device.state_bytes(FREE) == right["inactive"]
        assert course.allocated_bytes[0] == right["replayed_start_allocated"]
        assert course.peak_bytes == right["replayed_peak_allocated"]
        assert max(course.reserved_bytes) == right["replayed_peak_reserved"]
        assert [each.event for each in told.out_of_memory()] == right["oom_events"]
        assert {name: course.told.count(name) for name in course.told.names} == right["actions"]
        assert told.notices == ()
        # What is live adds up to the peak, but for rounding.
        assert abs(told.at().rest_bytes) <= course.peak_bytes // 500
        assert course.time_us(course.instants - 1) == pytest.approx(right["span_s"] * 1e6, abs=600)
