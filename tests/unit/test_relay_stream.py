"""A relay tells frames by how an agent writes them."""

from __future__ import annotations

import time

from memtui.relay.stream import Stream
from memtui.wire import codec
from memtui.wire.frames import DeviceFrame, Frame


def test_frames_are_known_by_the_bytes_that_agents_write() -> None:
    """However many, what a slow link leaves out is counted in the next that it carries."""
    stream = Stream()
    for number in range(100):
        stream.take(codec.encode(Frame(number, time.monotonic_ns(), 0, 1, "forward", 1, (DeviceFrame("host"),))))
    splitter, found = codec.Splitter(), []
    while not stream.empty:
        found += [codec.decode(body) for body in splitter.feed(stream.piece(1 << 16))]
    assert stream.lost_frames > 50
    assert found[-1].sequence == 99
    assert found[-1].lost_frames == stream.lost_frames
