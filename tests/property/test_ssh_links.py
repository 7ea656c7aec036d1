"""Links to other machines, on whatever comes: lists of hosts, frames, packed streams, clocks, thinned streams."""

from __future__ import annotations

import contextlib
import json
import string
import time

from hypothesis import given
from hypothesis import strategies as st

from memtui.relay.stream import Stream
from memtui.sources.remote_clock import Clock
from memtui.sources.ssh_address import AddressError, parse_host_file, parse_slurm, parse_target
from memtui.wire import codec
from memtui.wire.relaying import DATA, Frames, LinkError, Packer, Unpacker, frame

_NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=4)


@given(st.text(max_size=60))
def test_no_text_is_more_than_refused(text: str) -> None:
    """And what is taken has nothing in it that a shell or ssh acts on."""
    for parse in (parse_host_file, parse_slurm, lambda each: [parse_target("ssh://" + each).address]):
        with contextlib.suppress(AddressError):
            for address in parse(text):
                assert not address.destination.startswith("-")
                assert not set(address.destination) & set(" \t\n\r\0;&|<>()$`'\"\\*?[]{}!~#\x1b")


@given(st.lists(st.tuples(_NAMES, st.integers(0, 99), st.integers(0, 20), st.integers(1, 4)), min_size=1, max_size=4))
def test_ranges_of_slurm(parts: list[tuple[str, int, int, int]]) -> None:
    """A list written by its rules names the hosts that it was written for."""
    names: dict[str, None] = {}
    words = []
    for name, first, count, width in parts:
        words.append(f"{name}[{first:0{width}d}-{first + count:0{width}d}]")
        for number in range(first, first + count + 1):
            names[f"{name}{number:0{width}d}"] = None
    assert [address.host for address in parse_slurm(",".join(words))] == list(names)


@given(st.lists(st.tuples(st.integers(0, 1 << 31), st.binary(max_size=200)), max_size=8), st.data())
def test_frames_survive_any_cutting(sent: list[tuple[int, bytes]], data: st.DataObject) -> None:
    """Packed as one stream, cut anywhere."""
    packer, unpacker, frames = Packer(), Unpacker(), Frames()
    stream = b"".join(packer.pack(frame(DATA, channel, payload)) for channel, payload in sent)
    found = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        for piece in unpacker.unpack(stream[:cut]):
            found += [(channel, payload) for _, channel, payload in frames.feed(piece)]
        stream = stream[cut:]
    assert found == sent


@given(st.binary(max_size=400))
def test_garbage_is_refused(data: bytes) -> None:
    """As what it is, and not otherwise."""
    with contextlib.suppress(LinkError):
        for piece in Unpacker().unpack(data):
            list(Frames().feed(piece))
    with contextlib.suppress(LinkError):
        list(Frames().feed(data))


_PINGS = st.tuples(st.integers(0, 10**12), st.integers(-(10**12), 10**12), st.integers(0, 10**9))


@given(st.lists(_PINGS, min_size=1, max_size=12), st.lists(st.integers(-(10**15), 10**15), max_size=8))
def test_an_instant_that_was_moved_stays(pings: list[tuple[int, int, int]], instants: list[int]) -> None:
    """However often it is sent again, and whatever the clock is found to be meanwhile."""
    clock = Clock()
    seen: dict[int, int] = {}
    there = 0
    for sent, step, took in pings:
        there += abs(step)
        clock.sample(sent, there, sent + took)
        clock.settle()
        for instant in instants:
            if instant <= there:  # what is yet to come was not seen
                assert clock.here_ns(instant) == seen.setdefault(instant, clock.here_ns(instant))


@given(st.integers(0, 80), st.integers(0, 80), st.integers(1, 5000))
def test_a_stream_is_thinned_of_live_frames_only(past: int, live: int, piece: int) -> None:
    """What it gives out is whole messages in their order, all of the past, the newest, and a count of the others."""
    now = time.monotonic_ns()
    stream = Stream()
    for number in range(past + live):
        time_ns = now - 60_000_000_000 if number < past else now
        body = {"kind": "frame", "sequence": number, "time_ns": time_ns, "lost_frames": 0}
        text = json.dumps(body, separators=(",", ":")).encode()
        stream.take(len(text).to_bytes(4, "big") + text)
    splitter, found = codec.Splitter(), []
    while not stream.empty:
        found += [json.loads(body) for body in splitter.feed(stream.piece(piece))]
    numbers = [each["sequence"] for each in found]
    assert numbers == sorted(set(numbers))
    assert numbers[:past] == list(range(past))
    if past + live:
        assert numbers[-1] == past + live - 1
    assert stream.lost_frames == past + live - len(numbers)
    if live:
        assert found[-1]["lost_frames"] == stream.lost_frames
