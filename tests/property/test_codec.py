"""Whatever is a message survives the wire; whatever is not is refused, and nothing else happens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.wire import codec, frames

integers = st.integers(-(1 << 63), (1 << 63) - 1)
words = st.text(max_size=20)
figures = st.dictionaries(words, integers, max_size=4)
classifications = st.builds(frames.Classification, integers, integers, words, integers, figures)
summaries = st.builds(frames.BlockSummary, *[integers] * 9)
devices = st.builds(
    frames.DeviceFrame,
    words,
    st.none() | integers,
    st.none() | integers,
    step_peak_exact=st.booleans(),
    last_step_peak_phase=st.none() | words.filter(bool),
    blocks=st.none() | summaries,
    classification=st.none() | classifications,
)
sent_frames = st.builds(
    frames.Frame,
    integers,
    integers,
    integers,
    integers,
    words,
    integers,
    st.lists(devices, max_size=3).map(tuple),
    boundary=st.none() | words.filter(bool),
)
messages = st.one_of(
    sent_frames,
    st.builds(frames.Event, words, integers, integers, words, st.none() | words.filter(bool), figures, words),
    st.builds(frames.Bye, integers, st.none() | words.filter(bool), words),
    st.builds(frames.Refusal, words),
    st.builds(frames.Request, words, integers, st.booleans()),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(messages, max_size=4), st.integers(1, 50))
def test_messages_survive_however_they_are_cut(sent: list[Any], size: int) -> None:
    """A socket gives pieces of any length."""
    stream = b"".join(map(codec.encode, sent))
    splitter = codec.Splitter()
    received = []
    for start in range(0, len(stream), size):
        received += [codec.decode(body) for body in splitter.feed(stream[start : start + size])]

    assert received == sent


@settings(max_examples=200, deadline=None)
@given(sent_frames)
def test_a_frame_is_itself_also_where_its_parts_are_text_already(frame: frames.Frame) -> None:
    """As the agent makes it: nothing of what was found by looking changes from frame to frame, but its age."""
    assert codec.decode(codec.encode_frame(frame)[codec.LENGTH_BYTES :]) == frame
    parts = []
    for device in frame.devices:
        fields = dict(vars(device))
        for name in ("blocks", "classification"):
            if fields[name] is not None:
                rest = dict(vars(fields[name]))
                fields[name] = codec.aged(rest.pop("age_ns"), codec.rest_of(rest))
        parts.append(frames.made(frames.DeviceFrame, fields))
    made = frames.made(frames.Frame, {**vars(frame), "devices": tuple(parts)})
    assert codec.encode_frame(made) == codec.encode_frame(frame)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_junk_is_refused(junk: bytes) -> None:
    """By CodecError, nothing else."""
    with pytest.raises(codec.CodecError):
        list(codec.Splitter().feed(b"\xff" + junk + b"    "))
    with pytest.raises(codec.CodecError):
        codec.decode(junk)


json_values = st.recursive(
    st.none() | st.booleans() | integers | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(messages, st.data())
def test_a_field_of_another_kind_is_refused_or_harmless(message: Any, data: st.DataObject) -> None:
    """GIVEN one field replaced by anything, THEN it is refused, or the message is one that can be sent again."""
    plain = codec.to_json(message)
    name = data.draw(st.sampled_from(sorted(plain)))
    if data.draw(st.booleans()):
        plain[name] = data.draw(json_values)
    else:
        del plain[name]
    try:
        received = codec.decode(json.dumps(plain).encode())
    except codec.CodecError:
        return
    codec.encode(received)


def test_what_does_not_fit_into_64_bits_is_refused() -> None:
    """It could not be kept, and is nobody's memory."""
    plain = codec.to_json(frames.Bye(5))
    with pytest.raises(codec.CodecError):
        codec.decode(json.dumps({**plain, "time_ns": 1 << 63}).encode())


def test_fields_of_a_newer_peer_are_ignored() -> None:
    """They are merely new."""
    plain = codec.to_json(frames.Bye(5))

    assert codec.decode(json.dumps({**plain, "new": [1]}).encode()) == frames.Bye(5)
