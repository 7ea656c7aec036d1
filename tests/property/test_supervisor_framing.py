"""Frames and the ring behave like their simple models, however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.supervisor import messages
from memtui.supervisor.framing import HEADER, MAX_PAYLOAD_BYTES, Decoder, FramingError, encode
from memtui.supervisor.messages import Kind, MessageError
from memtui.supervisor.ring import CHUNK_BYTES, OutputRing

frames = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=300)), max_size=20)


@given(frames, st.lists(st.integers(1, 400), min_size=1, max_size=50))
def test_frames_come_back_however_they_are_cut(sent: list[tuple[int, bytes]], sizes: list[int]) -> None:
    stream = b"".join(encode(kind, payload) for kind, payload in sent)
    decoder = Decoder()
    received = []
    position = turn = 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        received += decoder.feed(stream[position : position + size])
        position += size
        turn += 1
    assert received == sent


@given(st.binary(max_size=200))
def test_anything_else_is_refused_or_waited_for(data: bytes) -> None:
    decoder = Decoder()
    try:
        found = decoder.feed(data)
    except FramingError:
        return
    assert b"".join(encode(kind, payload) for kind, payload in found) == data[: sum(5 + len(p) for _, p in found)]


def test_lengths() -> None:
    encode(1, bytes(MAX_PAYLOAD_BYTES))
    with pytest.raises(FramingError):
        encode(1, bytes(MAX_PAYLOAD_BYTES + 1))
    with pytest.raises(FramingError):
        Decoder().feed(HEADER.pack(1, MAX_PAYLOAD_BYTES + 1))


@given(st.dictionaries(st.text(max_size=9), st.none() | st.integers() | st.text() | st.lists(st.text(max_size=9))))
def test_fields_come_back(fields: dict[str, object]) -> None:
    [(kind, payload)] = Decoder().feed(messages.write(Kind.START, **fields))
    assert kind == Kind.START
    assert (messages.read(payload) if fields else {}) == fields


@given(st.integers(0, 2**64 - 1), st.binary(max_size=100))
def test_output_comes_back(offset: int, data: bytes) -> None:
    [(_, payload)] = Decoder().feed(messages.write_output(offset, data))
    assert messages.read_output(payload) == (offset, data)


@given(st.binary(max_size=60))
def test_payloads_are_read_or_refused(payload: bytes) -> None:
    for read in (messages.read, messages.read_output):
        try:
            read(payload)
        except MessageError:
            continue


@given(
    st.integers(1, 3 * CHUNK_BYTES),
    st.lists(st.integers(0, 2 * CHUNK_BYTES), max_size=12),
    st.data(),
)
def test_the_ring_is_the_end_of_the_stream(capacity: int, sizes: list[int], data: st.DataObject) -> None:
    ring = OutputRing(capacity)
    stream = b""
    for number, size in enumerate(sizes):
        piece = bytes([number]) * size
        stream += piece
        ring.append(piece)
        assert ring.end == len(stream)
        assert ring.end - ring.start <= max(capacity, CHUNK_BYTES)
        # It forgets no more than it must, a chunk at a time.
        assert ring.start == 0 or ring.end - ring.start > max(capacity, CHUNK_BYTES) - CHUNK_BYTES
    position = data.draw(st.integers(ring.start, ring.end))
    read = b""
    while True:
        piece = ring.read(position + len(read), 50_000)
        if not piece:
            break
        read += piece
    assert read == stream[position:]
