"""Memory snapshots: what is told of every instant, by walking back from the end."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.snapshots.answers import overview
from memtui.snapshots.errors import SnapshotError
from memtui.snapshots.instant import largest_free_bytes
from memtui.snapshots.model import open_snapshot
from memtui.snapshots.moments import instant_number
from memtui.snapshots.pyramid import Pyramid
from memtui.snapshots.queries import by_category, by_site, difference, folded
from memtui.snapshots.ranges import Ranges
from tests.support import snapshots as made
from tests.support.snapshots import MIB, block, event, frame, segment


def test_every_instant_is_derived_from_the_end() -> None:
    """What was there before the recording is what is left when all events are taken back."""
    told = made.opened(made.training())
    assert [figure // MIB for figure in told.course.allocated_bytes] == [30, 30, 34, 40, 36, 36, 30, 30, 38, 38]
    assert [figure // MIB for figure in told.course.reserved_bytes] == [32, *[52] * 9]
    assert (told.course.peak, told.course.peak_bytes) == (3, 40 * MIB)
    assert told.course.time_us(told.course.peak) == 20
    assert told.notices == ()


def test_what_is_live_at_an_instant_has_the_stack_that_allocated_it() -> None:
    told = made.opened(made.training())
    peak = told.at()
    assert [(each.name, each.size_bytes // MIB, each.blocks) for each in by_site(peak.live)] == [
        ("before the recording", 30, 1),
        ("model.py:7 forward", 10, 2),
    ]
    assert [each.event for each in peak.live] == [None, 3, 2]
    assert peak.rest_bytes == 0
    assert [each.name for each in by_category(peak.live)] == ["forward", "before the recording"]
    assert ("train.py:3 <module>;module.py:1794 _call_impl;model.py:7 forward", 10 * MIB) in folded(peak)
    assert [each.name for each in by_category(told.end().live)] == ["optimizer", "before the recording"]
    assert [each.name for each in by_site(told.at(0).live)] == ["before the recording"]


def test_rounding_is_a_rest_and_no_block() -> None:
    """A trace has what was asked for, the end what the allocator gave."""
    trace = [event("alloc", 0, 700, 1), event("alloc", 1024, 4, 2), event("free_requested", 1024, 4, 3)]
    told = made.opened(made.raw([segment(0, block(1024, "active_allocated", requested=700), block(1024))], trace))
    assert list(told.course.allocated_bytes) == [324, 1024, 1028, 1024]
    assert told.at().rest_bytes == 324
    assert sum(each.size_bytes for each in told.at().live) == 704


def test_a_request_that_failed_is_replayed_to_its_instant() -> None:
    """The largest free block then, also where memory was mapped, unmapped and taken since."""
    trace = [
        event("segment_map", 0, 20 * MIB, 1),
        event("alloc", 0, 6 * MIB, 2),
        event("alloc", 6 * MIB, 2 * MIB, 3),
        event("free_requested", 0, 6 * MIB, 4),
        event("free_completed", 0, 6 * MIB, 5),
        event("free_requested", 6 * MIB, 2 * MIB, 6),
        event("oom", 9 * MIB, 64 * MIB, 7),
        event("free_completed", 6 * MIB, 2 * MIB, 8),
        event("segment_unmap", 10 * MIB, 10 * MIB, 9),
    ]
    told = made.opened(made.raw([segment(0, block(10 * MIB), is_expandable=True)], trace))
    (failed,) = told.out_of_memory()
    # 2 MiB in the middle of 20 still wait for another stream.
    assert failed.largest_free_bytes == 12 * MIB
    assert (failed.event, failed.requested_bytes, failed.device_free_bytes) == (7, 64 * MIB, 9 * MIB)
    assert (failed.allocated_bytes, failed.reserved_bytes) == (0, 20 * MIB)
    assert largest_free_bytes(told.device, told.course, told.course.instants - 1) == 10 * MIB
    assert largest_free_bytes(told.device, told.course, 0) == 0


@pytest.mark.parametrize(
    ("frames", "category", "site"),
    [
        (made.FORWARD, "forward", "model.py:7 forward"),
        (made.MOVING, "parameters", "train.py:1 <module>"),
        (made.STEPPING, "optimizer", "train.py:5 <module>"),
        ([frame("??", 0, "torch::autograd::Engine::evaluate_function()")], "backward", "no Python stack"),
        (
            [frame("/x/torch/autograd/graph.py", 8, "_engine_run_backward")],
            "backward",
            "graph.py:8 _engine_run_backward",
        ),
        ([*made.FORWARD[:2], frame("/x/torch/_tensor.py", 5, "backward")], "forward", "model.py:7 forward"),
        ([frame("/home/me/train.py", 9, "batch")], "other", "train.py:9 batch"),
        ([frame(r"D:\me\torch\nn\modules\module.py", 5, "_call_impl")], "forward", "module.py:5 _call_impl"),
        ([frame("/env/site-packages/einops/e.py", 2, "e"), made.FORWARD[0]], "other", "model.py:7 forward"),
        ([], "no Python stack", "no Python stack"),
        ([7, {"name": None}], "no Python stack", "no Python stack"),
    ],
)
def test_what_a_stack_tells(frames: Any, category: str, site: str) -> None:
    trace = [event("alloc", 0, MIB, 1, frames)]
    told = made.opened(made.raw([segment(0, block(MIB, "active_allocated"))], trace))
    (live,) = told.end().live
    assert (live.stack.category, live.stack.site) == (category, site)


def test_a_stack_that_many_share_is_looked_at_once_and_not_endlessly_deep() -> None:
    """A file of some 100 KB could keep a program busy for hours."""
    deep = [frame("/home/me/deep.py", line, "f") for line in range(20_000)]
    trace = [{**event("alloc", place * 512, 512, place), "frames": deep} for place in range(20_000)]
    told = made.opened(made.raw([segment(0, *[block(512, "active_allocated")] * 20_000)], trace))
    (group,) = by_site(told.end().live)
    assert (group.name, group.blocks, len(group.stack.frames)) == ("deep.py f", 20_000, 1_000)


def test_two_instants_differ_by_what_came_and_went() -> None:
    told = made.opened(made.training())
    found = difference(told.at(), told.end())
    assert [(each.name, each.change_bytes // MIB, each.before_blocks, each.after_blocks) for each in found] == [
        ("model.py:7 forward", -10, 2, 0),
        ("train.py:5 <module>", 8, 0, 1),
    ]
    assert difference(told.end(), told.end()) == []


def test_several_devices_and_the_one_with_most_is_shown() -> None:
    segments = [segment(0, block(MIB, "active_allocated")), segment(0, block(4 * MIB, "active_allocated"), device=2)]
    told = made.raw(segments, [], [], [event("alloc", 0, 4 * MIB, 1)])
    assert [each.name for each in made.opened(told).snapshot.devices] == ["cuda:0", "cuda:2"]
    assert made.opened(told).device.name == "cuda:2"
    assert made.opened(told, "cuda:0").course.instants == 1
    with pytest.raises(SnapshotError, match=r"cuda:1 is not in made\.pickle: --device cuda:0 or cuda:2"):
        made.opened(told, "cuda:1")


def test_totals_that_disagree_are_both_said() -> None:
    segments = [segment(0, block(4 * MIB, "active_allocated"), allocated_size=3 * MIB, total_size=5 * MIB)]
    told = made.opened(made.raw(segments, [event("alloc", 0, 64 * MIB, 1)]))
    first, second = told.snapshot.notices
    assert "says 3.0 MiB allocated (3,145,728 B), its blocks add up to 4.0 MiB (4,194,304 B)" in first
    assert "has 5.0 MiB (5,242,880 B), its blocks add up to 4.0 MiB" in second
    assert told.notices == (
        "cuda:0: the events and the segments disagree: 4.0 MiB allocated at the end, less what the events add, is "
        "60.0 MiB below nothing",
    )


@pytest.mark.parametrize("bare", [True, False])
def test_without_events_the_end_is_told(bare: bool) -> None:
    """Of the list of segments that torch 1 gave too."""
    segments = made.training()["segments"]
    told = made.opened(segments if bare else made.raw(segments, []))
    assert (told.course.instants, told.course.peak_bytes) == (1, 38 * MIB)
    assert told.device.largest_free_bytes == 12 * MIB
    assert told.course.time_us(0) is None
    assert "no events" in " ".join(told.snapshot.notices)


def test_a_snapshot_of_torch_1_13_has_its_stacks_in_the_history() -> None:
    """And no times, no addresses of blocks, and the older name of what waits."""
    past = [{"addr": made.BASE, "real_size": 700, "frames": made.FORWARD}]
    blocks = [
        {"size": 1024, "state": "active_allocated", "history": past},
        {"size": 512, "state": "active_pending_free"},
        {"size": 512, "state": "inactive"},
    ]
    old = {
        "device": 0,
        "address": made.BASE,
        "total_size": 2048,
        "stream": 0,
        "segment_type": "small",
        "blocks": blocks,
    }
    trace = [{key: event("alloc", 0, 700, 0)[key] for key in ("action", "addr", "size", "stream", "frames")}]
    told = made.opened({"segments": [old], "device_traces": [[], [], trace[:0]]})
    (live,) = told.end().live
    assert live.stack.site == "model.py:7 forward"
    assert (told.device.requested_bytes, told.device.state_bytes("active_awaiting_free")) == (700, 512)
    told = made.opened({"segments": [old], "device_traces": [trace]})
    assert told.course.time_us(1) is None
    with pytest.raises(SnapshotError, match="events have no times: name one by its number"):
        instant_number("1s", told.course)


@pytest.mark.parametrize(
    ("text", "number"), [("peak", 3), ("start", 0), ("end", 9), ("2", 2), ("20us", 3), ("0.025ms", 3), ("80us", 9)]
)
def test_instants_as_people_write_them(text: str, number: int) -> None:
    assert instant_number(text, made.opened(made.training()).course) == number


@pytest.mark.parametrize("text", ["10", "-1", "1h", "1s", "", "9" * 400])
def test_what_is_no_instant_is_said(text: str) -> None:
    with pytest.raises(SnapshotError, match=r"there is no event|is no instant"):
        instant_number(text, made.opened(made.training()).course)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([{"action": "alloc"}], "event 0 has no size"),
        ([event("alloc", 0, 1, 0), 3], "event 1 is no dict"),
        ([event("alloc", 0, -1, 0)], "event 0 has no size, or one that cannot be"),
        ([{"action": ["x"], "size": 1, "addr": 1}], "event 0 has no action"),
        ([event("alloc", 0, 1 << 62, 0)] * 4, "more than any memory"),
        ([event("alloc", 0, 1, 0), {"action": "alloc", "size": 1, "addr": 1}], "event 1 has no time_us|have none"),
    ],
)
def test_a_damaged_event_is_said_in_words(events: list[Any], said: str) -> None:
    with pytest.raises(SnapshotError, match=said):
        made.opened(made.raw([], events))


def test_an_action_that_is_not_known_is_left_out_and_said() -> None:
    trace = [event("alloc", 0, MIB, 1), event("teleport", 0, MIB, 2)]
    told = made.opened(made.raw([segment(0, block(MIB, "active_allocated"))], trace))
    assert told.course.peak_bytes == MIB
    assert told.notices == ("cuda:0: events that this memtui does not know are left out: 1 of 'teleport'",)


def test_each_protocol_and_gzip_tell_the_same(tmp_path: pathlib.Path) -> None:
    import gzip

    paths = [made.write(tmp_path / f"{protocol}.pickle", made.training(), protocol) for protocol in range(2, 6)]
    (tmp_path / "z.pickle.gz").write_bytes(gzip.compress(pathlib.Path(paths[0]).read_bytes()))
    expected = made.opened(made.training()).snapshot.devices
    for path in [*paths, str(tmp_path / "z.pickle.gz")]:
        assert open_snapshot(path, 1 << 30).devices == expected


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=700), st.data())
def test_a_pyramid_loses_no_spike(figures: list[int], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(figures) - 1))
    end = data.draw(st.integers(begin + 1, len(figures)))
    pyramid = Pyramid(figures)
    assert pyramid.range(begin, end) == (min(figures[begin:end]), max(figures[begin:end]))
    columns = pyramid.columns(begin, end, 7)
    assert len(columns) == 7
    assert max(high for _, high in columns) == max(figures[begin:end])
    assert min(low for low, _ in columns) == min(figures[begin:end])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(1, 12)), max_size=12))
def test_ranges_are_the_addresses_that_have_memory(steps: list[tuple[bool, int, int]]) -> None:
    ranges, have = Ranges(), set()
    for comes, address, length in steps:
        addresses = set(range(address, address + length))
        have = have | addresses if comes else have - addresses
        (ranges.add if comes else ranges.remove)(address, length)
    stretches = ranges.stretches()
    assert {place for address, length in stretches for place in range(address, address + length)} == have
    assert sum(length for _, length in stretches) == len(have)


def test_the_header_tells_of_the_request_that_failed() -> None:
    """GIVEN a snapshot whose peak is not where a request failed, THEN the header's figures are those of the request."""
    trace = [
        event("segment_map", 0, 20 * MIB, 1),
        event("alloc", 0, 16 * MIB, 2),
        event("free_requested", 0, 16 * MIB, 3),
        event("free_completed", 0, 16 * MIB, 4),
        event("segment_unmap", 10 * MIB, 10 * MIB, 5),
        event("oom", 9 * MIB, 64 * MIB, 6),
        event("segment_map", 10 * MIB, 10 * MIB, 7),
    ]
    told = made.opened(made.raw([segment(0, block(20 * MIB), is_expandable=True)], trace))
    (failed,) = told.out_of_memory()
    assert (failed.reserved_bytes, failed.largest_free_bytes) == (10 * MIB, 10 * MIB)
    below = overview(told).below[0]
    assert below.startswith("out of memory: 1 request failed; 10.0 MiB reserved then; largest free block 10.0 MiB")
