"""The ladder and the bar: they add up by measuring, and rests are shown."""

from __future__ import annotations

import dataclasses
from typing import Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.bar import build_bar
from memtui.analysis.build import build_view
from memtui.analysis.ladder import build_ladder
from memtui.analysis.policy import DEFAULT
from memtui.analysis.view import Bar
from memtui.session.readings import DeviceReading, DriverReading, HostReading, OtherProcess
from memtui.session.session import Session
from memtui.wire.frames import Device, DeviceFrame, Frame
from tests.support.sessions import GIB, MIB, SECOND, UUID, Run, blocks, classified, hello


def bar_of(session: Session, device: str = "cuda:0") -> Bar:
    ladder = build_ladder(session, device, 0, DEFAULT)
    return build_bar(session, device, ladder, DEFAULT)


def figures(bar: Bar) -> dict[str, Optional[int]]:
    return {band.key: band.figure.value for band in bar.bands}


def adds_up(bar: Bar) -> bool:
    return sum(band.figure.value or 0 for band in bar.bands) == bar.total.value


def test_the_whole_device_by_owner() -> None:
    """GIVEN a classified frame and the driver's figures, THEN every byte has an owner and the sum is the device."""
    run = Run()
    run.frame(10 * GIB, 12 * GIB)
    run.driver(14 * GIB, 13 * GIB, OtherProcess(7, 1 * GIB, "x"), driver_reserved_bytes=GIB // 2)
    run.frame(
        10 * GIB,
        12 * GIB,
        active_bytes=10 * GIB + 3 * MIB,
        inactive_split_bytes=512 * MIB,
        classification=classified(10 * GIB, parameters=6 * GIB, optimizer_state=3 * GIB),
    )

    bar = bar_of(run.session)

    assert adds_up(bar)
    assert bar.total.value == 24 * GIB
    assert {key: value for key, value in figures(bar).items() if value} == {
        "parameters": 6 * GIB,
        "optimizer_state": 3 * GIB,
        "unattributed": GIB,
        "active_pending_free": 3 * MIB,
        "reusable_cache": 2 * GIB - 515 * MIB,
        "inactive_split": 512 * MIB,
        "non_torch": GIB,
        "other_processes": GIB,
        "driver_reserved": GIB // 2,
        "device_free": 24 * GIB - 14 * GIB - GIB // 2,
    }


def test_free_moves_with_reserved_after_the_driver_was_read() -> None:
    """GIVEN the allocator took 2 GiB since the driver was read, THEN free is 2 GiB less and non-torch as it was."""
    run = Run()
    run.frame(4 * GIB, 6 * GIB)
    run.driver(7 * GIB, 7 * GIB)
    run.frame(4 * GIB, 6 * GIB)
    run.frame(8 * GIB, 8 * GIB)

    ladder = build_ladder(run.session, "cuda:0", run.now_ns, DEFAULT)

    assert ladder.non_torch_bytes == GIB
    assert ladder.free_bytes == 15 * GIB
    assert ladder.used_bytes == 9 * GIB
    assert ladder.moved_bytes == 2 * GIB
    assert adds_up(bar_of(run.session))


def test_a_reading_taken_while_reserved_changed_gives_way_to_a_settled_one() -> None:
    """GIVEN reserved jumps around the second reading, THEN non-torch is that of the first: no minus 5 GiB."""
    run = Run()
    run.frame(GIB, 2 * GIB)
    run.driver(3 * GIB, 3 * GIB)
    run.frame(GIB, 2 * GIB)
    run.driver(3 * GIB, 3 * GIB)  # read just before the jump
    run.frame(8 * GIB, 8 * GIB)

    ladder = build_ladder(run.session, "cuda:0", run.now_ns, DEFAULT)

    assert ladder.non_torch_bytes == GIB
    assert ladder.process_bytes == 9 * GIB


def test_memory_freed_since_the_classification_is_a_negative_rest() -> None:
    """A classification older than its counters is not scaled and not clamped."""
    run = Run()
    run.frame(
        3 * GIB, 8 * GIB, classification=classified(7 * GIB, age_ns=SECOND, parameters=2 * GIB, activations=5 * GIB)
    )

    bar = bar_of(run.session)

    assert figures(bar)["unattributed"] == -4 * GIB
    assert adds_up(bar)
    assert bar.label == "reserved"


def test_no_figures_by_process() -> None:
    """GIVEN WSL, THEN what the allocator does not hold has no known owner, and the reason is told."""
    run = Run()
    run.frame(4 * GIB, 6 * GIB)
    run.driver(9 * GIB, None, OtherProcess(7, None, ""), reason="no figures by process")
    run.frame(4 * GIB, 6 * GIB)

    ladder = build_ladder(run.session, "cuda:0", run.now_ns, DEFAULT)

    assert ladder.non_torch_bytes is None
    assert ladder.other_process_bytes is None
    assert ladder.unattributed_bytes == 3 * GIB
    assert "no figures by process" in ladder.notes
    assert adds_up(bar_of(run.session))


def test_another_pid_namespace() -> None:
    """GIVEN a list in which this process is somebody else, THEN nobody's bytes are called other processes'."""
    run = Run()
    run.frame(4 * GIB, 6 * GIB)
    run.driver(7 * GIB, None, OtherProcess(31337, 7 * GIB, ""))
    run.frame(4 * GIB, 6 * GIB)

    ladder = build_ladder(run.session, "cuda:0", run.now_ns, DEFAULT)

    assert ladder.other_process_bytes is None
    assert ladder.others == ()
    assert ladder.unattributed_bytes == GIB
    assert adds_up(bar_of(run.session))


def test_memory_info_v1_hides_what_the_driver_reserves() -> None:
    """What v1 counts as used by nobody is shown as of unknown owner."""
    run = Run()
    run.frame(4 * GIB, 6 * GIB)
    run.driver(8 * GIB, 7 * GIB, driver_reserved_bytes=None)
    run.frame(4 * GIB, 6 * GIB)

    assert figures(bar_of(run.session))["device_unattributed"] == GIB
    assert adds_up(bar_of(run.session))


def test_figures_of_unified_memory_that_do_not_add_up() -> None:
    """free + used far from total: the difference is shown, not hidden."""
    run = Run()
    run.frame(4 * GIB, 6 * GIB)
    run.driver(8 * GIB, 7 * GIB, free_bytes=3 * GIB)
    run.frame(4 * GIB, 6 * GIB)

    assert figures(bar_of(run.session))["device_unattributed"] == 24 * GIB - 3 * GIB - 7 * GIB
    assert adds_up(bar_of(run.session))


def test_a_lost_gpu_leaves_the_allocators_figures() -> None:
    """GIVEN the driver lost the GPU, THEN its figures are unknown, with the reason, and the bar is of reserved."""
    run = Run()
    run.frame(4 * GIB, 6 * GIB)
    run.driver(7 * GIB, 7 * GIB)
    run.frame(4 * GIB, 6 * GIB)
    run.driver(None, None, total=None, reason="the GPU is lost", others=None, driver_reserved_bytes=None)

    view = build_view(run.session, "cuda:0", run.now_ns)

    assert view.bar.label == "reserved"
    assert adds_up(view.bar)
    assert next(row for row in view.rows if row.key == "device_used_bytes").figure.kind == "unknown"
    assert "the GPU is lost" in view.notices


def test_a_spill_is_told() -> None:
    """allocated > total, as WSL allows, is a negative free and a notice."""
    run = Run()
    run.frame(20 * GIB, 22 * GIB)
    run.driver(23 * GIB, 23 * GIB)
    run.frame(20 * GIB, 22 * GIB)
    run.frame(28 * GIB, 28 * GIB)

    bar = bar_of(run.session)

    assert figures(bar)["device_free"] == -5 * GIB
    assert adds_up(bar)


def test_holes_of_expandable_segments_come_from_the_blocks() -> None:
    """The counter reads 0 there; and where the blocks' figure no longer fits, only the sum of what is free is shown."""
    run = Run()
    run.frame(
        4 * GIB,
        6 * GIB,
        active_bytes=4 * GIB,
        inactive_split_bytes=0,
        blocks=blocks(inactive_split_bytes=GIB, age_ns=SECOND),
    )
    assert figures(bar_of(run.session))["inactive_split"] == GIB

    run.frame(
        6 * GIB - MIB,
        6 * GIB,
        active_bytes=6 * GIB - MIB,
        inactive_split_bytes=0,
        blocks=blocks(inactive_split_bytes=GIB, age_ns=SECOND),
    )
    assert figures(bar_of(run.session))["reusable_cache"] == MIB
    assert "inactive_split" not in figures(bar_of(run.session))


def host_session() -> Session:
    session = Session(1)
    session.apply(hello(Device("host", "host", "CPU", "mallinfo2")), 0)
    session.apply_host(HostReading(50, True, rss_bytes=3 * GIB, total_bytes=16 * GIB, available_bytes=9 * GIB))
    frame = DeviceFrame("host", allocated_bytes=2 * GIB, reserved_bytes=4 * GIB, rss_bytes=3 * GIB + MIB)
    session.apply(Frame(1, 100, 0, 0, "forward", 90, (frame,)), 0)
    return session


def test_the_host_is_a_device() -> None:
    """Pages that malloc holds and nobody touched make the rest negative; it is shown so, and the sum is the host."""
    bar = bar_of(host_session(), "host")

    assert adds_up(bar)
    assert bar.label == "host"
    assert figures(bar)["non_torch"] == -GIB + MIB
    assert figures(bar)["other_processes"] == 4 * GIB


def test_a_limited_host() -> None:
    """The control group's limit is the capacity; what is left under it, and not on the machine, is free."""
    session = host_session()
    reading = HostReading(
        50,
        True,
        rss_bytes=3 * GIB,
        total_bytes=64 * GIB,
        available_bytes=40 * GIB,
        limit_bytes=8 * GIB,
        limit_room_bytes=5 * GIB,
        file_bytes=GIB,
    )
    session.apply_host(reading)
    bar = bar_of(session, "host")

    assert adds_up(bar)
    assert bar.total.value == 8 * GIB
    # The process's pages of files are its own, though the system would take them back.
    assert figures(bar)["device_free"] == 4 * GIB - MIB
    assert figures(bar)["other_processes"] == GIB
    notices = build_view(session, "host", 100).notices
    assert "this process is limited to 8.0 GiB by its cgroup; the machine has 64.0 GiB" in notices

    session.apply_host(dataclasses.replace(reading, available_bytes=2 * GIB))
    assert figures(bar_of(session, "host"))["device_free"] == GIB - MIB  # the machine has no more


def test_a_process_without_pytorch() -> None:
    """Only what the driver and the system know, and that is said."""
    session = Session(4242)
    session.apply_host(HostReading(1, True, rss_bytes=GIB, total_bytes=16 * GIB, available_bytes=9 * GIB))
    reading = DeviceReading(
        UUID,
        2,
        0,
        "A GPU",
        24 * GIB,
        5 * GIB,
        19 * GIB,
        0,
        process_bytes=3 * GIB,
        others=(OtherProcess(1, 2 * GIB, "x"),),
    )
    session.apply_driver(DriverReading(2, (reading,)))

    assert [device.device for device in session.devices] == ["gpu:0"]
    view = build_view(session, "gpu:0", 3)

    assert adds_up(view.bar)
    assert figures(view.bar) == {"process": 3 * GIB, "other_processes": 2 * GIB, "device_free": 19 * GIB}
    assert view.verdict.level == "unknown"
    assert "no PyTorch" in view.verdict.text


bytes_held = st.integers(-GIB, 30 * GIB)
maybe = st.none() | bytes_held


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(bytes_held, bytes_held), min_size=1, max_size=6),
    st.tuples(maybe, maybe, maybe, maybe),
    st.none() | st.lists(maybe, max_size=3),
    st.tuples(maybe, maybe),
    st.none() | st.dictionaries(st.sampled_from(["parameters", "activations", "optimizer_state"]), bytes_held),
)
def test_the_bar_adds_up_whatever_was_measured(
    samples: list[tuple[int, int]],
    driver: tuple[Optional[int], ...],
    others: Optional[list[Optional[int]]],
    cache: tuple[Optional[int], Optional[int]],
    categories: Optional[dict[str, int]],
) -> None:
    """Wrong, missing and contradicting figures too: no bar sums to more or less than its parent."""
    run = Run()
    used, free, reserved, process = driver
    for place, (allocated, held) in enumerate(samples):
        if place == len(samples) // 2:
            processes = None if others is None else tuple(OtherProcess(n, size, "") for n, size in enumerate(others))
            run.driver(used, process, free_bytes=free, driver_reserved_bytes=reserved, others=processes)
        classification = None if categories is None else classified(allocated + place, **categories)
        run.frame(allocated, held, active_bytes=cache[0], inactive_split_bytes=cache[1], classification=classification)

    assert adds_up(bar_of(run.session))


@pytest.mark.parametrize("missing", ["session", "frame"])
def test_nothing_known_yet(missing: str) -> None:
    """A view of nothing is a view, with every figure unknown."""
    session = Session(1)
    if missing == "frame":
        session.apply(hello(), 0)
    view = build_view(session, "cuda:0", 0)

    assert view.state == "starting"
    assert all(row.figure.kind == "unknown" for row in view.rows)


def test_a_driver_that_contradicts_the_allocator_is_left_out() -> None:
    """GIVEN less in use by the driver than PyTorch holds (unified memory), THEN no figure is derived from the two."""
    run = Run()
    for _ in range(3):
        run.frame(10 * GIB, 12 * GIB)
    run.driver(0, None)
    run.frame(10 * GIB, 12 * GIB)

    view = build_view(run.session, "cuda:0", run.now_ns, DEFAULT)

    assert any("left out" in notice for notice in view.notices)
    assert all((band.figure.value or 0) >= 0 for band in view.bar.bands)
    assert adds_up(view.bar)
    assert "-" not in view.verdict.text


def test_a_reading_of_another_moment_makes_no_device_fuller_than_full() -> None:
    """GIVEN much was taken before and after the driver was read, THEN what cannot be is not shown: it is left out."""
    run = Run()
    run.frame(2 * GIB, 2 * GIB)
    run.driver(16 * GIB, 16 * GIB)
    run.frame(23 * GIB, 23 * GIB)

    ladder = build_ladder(run.session, "cuda:0", run.now_ns, DEFAULT)

    assert (ladder.used_bytes, ladder.free_bytes, ladder.non_torch_bytes) == (None, None, None)
    assert (ladder.total_bytes, ladder.reserved_bytes) == (24 * GIB, 23 * GIB)
    assert "its figures are left out" in ladder.notes[0]
