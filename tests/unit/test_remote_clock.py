"""Instants of another machine on this one's clock."""

from __future__ import annotations

import dataclasses

import pytest

from memtui.session.readings import HostReading
from memtui.sources.remote_clock import INSTANTS, Clock
from memtui.wire import frames
from memtui.wire.codec import CodecError
from memtui.wire.frames import BackwardGraph, DeviceFrame, Event, Frame, Hello, RecordedStep

#: Lengths of time, which no clock moves; whoever adds a field says here or in INSTANTS what it is.
_LENGTHS = {
    "age_ns",
    "agent_cpu_ns",
    "cost_ns",
    "duration_ns",
    "last_step_ns",
    "late_ns",
    "wall_offset_ns",
}


def clock(offset_ns: int) -> Clock:
    made = Clock()
    made.sample(1000, 1500 - offset_ns, 2000)
    made.settle()
    return made


def test_every_time_of_a_message_is_known_for_what_it_is() -> None:
    for message in frames.MESSAGES.values():
        names = {field.name for field in dataclasses.fields(message) if field.name.endswith("_ns")}
        assert names - set(INSTANTS.get(message, ())) <= _LENGTHS, message


def test_instants_move_and_lengths_do_not() -> None:
    frame = Frame(1, 5_000, 7, 3, "forward", 4_000, (DeviceFrame("host"),), step_since_ns=3_000, last_step_ns=900)
    moved = clock(10**9).moved(frame)
    assert (moved.time_ns, moved.phase_since_ns, moved.step_since_ns) == (10**9 + 5_000, 10**9 + 4_000, 10**9 + 3_000)
    assert (moved.late_ns, moved.last_step_ns, moved.devices) == (7, 900, frame.devices)
    assert clock(10**9).moved(dataclasses.replace(frame, step_since_ns=None)).step_since_ns is None


def test_the_wall_clock_there_stays_what_it_is() -> None:
    hello = Hello(1, "0.1", 5, "3.11", "2.2", (), "/", "box", 8_000, 10**18, 2_000)
    moved = clock(-3_000).moved(hello)
    assert moved.started_ns == -1_000
    assert moved.time_ns + moved.wall_offset_ns == hello.time_ns + hello.wall_offset_ns


def test_a_graph_takes_its_recorded_forward_along() -> None:
    step = RecordedStep("cuda:0", 0, 50, 1, 1, 0, None, (), (), (), (), (), (), ())
    graph = BackwardGraph(60, 0, 0, (), (), (), (), (), forward=(step,))
    moved = clock(100).moved(graph)
    assert (moved.time_ns, moved.forward[0].time_ns) == (160, 150)


def test_the_best_of_the_first_pings_counts() -> None:
    """Half the round trip is how far off it may be."""
    made = Clock()
    made.sample(0, 900, 1_000_000)
    made.sample(2_000_000, 1_500_000, 2_000_100)
    made.sample(3_000_000, 1_900, 4_000_000)
    assert made.here_ns(1_500_000) == 2_000_050
    assert made.error_ns == 51


def test_a_clock_that_drifts_moves_what_is_yet_to_come() -> None:
    made = clock(0)
    later = 3_600_000_000_000
    made.sample(later, later - 40_000_000, later)
    assert made.here_ns(5_000) == 5_000
    assert made.here_ns(later) == later
    assert made.here_ns(later + 2_000_000_000) == later + 2_040_000_000


@pytest.mark.parametrize("time_ns", [1 << 62, -(1 << 63), (1 << 63) - 1])
def test_what_is_nobodys_instant_is_refused(time_ns: int) -> None:
    with pytest.raises(CodecError):
        clock(5).moved(Event("oom", time_ns, 0, "forward"))
    with pytest.raises(CodecError):
        clock(1 << 61).moved_reading(HostReading(1 << 61, True))
