"""The agent's socket against viewers that read slowly, speak nonsense or are somebody else's."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import time
from collections.abc import Iterator

import pytest

from memtui.agent.server import Server
from memtui.wire import codec, paths
from memtui.wire.frames import Frame, Hello, Refusal, Request

HELLO = Hello(1, "0", 1, "3", "2", ("train.py",), "/", "host", 1, 2, 3)


@pytest.fixture
def server(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("MEMTUI_RUNTIME_DIR", str(tmp_path / "run"))
    made = Server(lambda history: [codec.encode(HELLO)], lambda request, viewer: None)
    made.check(time.monotonic_ns())
    assert made.trouble == ""
    yield made
    made.close()


def viewer(server: Server, request: object) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(paths.agent_socket_path(__import__("os").getpid())))
    connection.settimeout(10)
    connection.sendall(request if isinstance(request, bytes) else codec.encode(request))
    for _ in range(3):
        server.poll(10_000_000)
    return connection


def received(connection: socket.socket) -> list[object]:
    splitter, found = codec.Splitter(), []
    connection.settimeout(0.2)
    while True:
        try:
            data = connection.recv(1 << 16)
        except (TimeoutError, socket.timeout):
            return found
        if not data:
            return found
        found += [codec.decode(body) for body in splitter.feed(data)]


def frame(sequence: int) -> Frame:
    return Frame(sequence, sequence, 0, 0, "forward", 0, ())


def test_a_viewer_that_does_not_read_loses_frames_and_is_told_how_many(server: Server) -> None:
    connection = viewer(server, Request("hello"))
    begun = time.perf_counter()
    total = 50_000
    for sequence in range(total):
        server.broadcast(codec.encode(frame(sequence)), frame=True)
        server.flush()
    assert time.perf_counter() - begun < 60  # it never waited for the viewer
    frames: list[Frame] = []
    for _ in range(1000):
        server.poll(1_000_000)
        frames += [message for message in received(connection) if isinstance(message, Frame)]
        if frames and frames[-1].sequence == total - 1:
            break
    lost = frames[-1].lost_frames
    assert lost > 0
    assert len(frames) + lost == total
    connection.close()


@pytest.mark.parametrize("nonsense", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\0\0\0\2{}", codec.encode(HELLO)])
def test_nonsense_drops_that_viewer_alone(server: Server, nonsense: bytes) -> None:
    good, bad = viewer(server, Request("hello")), viewer(server, nonsense)
    assert server.viewers == 1
    assert bad.recv(100) == b""
    server.broadcast(codec.encode(frame(5)), frame=True)
    server.flush()
    assert received(good) == [HELLO, frame(5)]
    good.close()
    bad.close()


def test_another_protocol_is_refused_in_one_line(server: Server) -> None:
    connection = viewer(server, Request("hello", protocol=2))
    (refusal,) = received(connection)
    assert isinstance(refusal, Refusal)
    assert "\n" not in refusal.reason
    connection.close()


def test_what_no_viewer_would_take_is_not_sent_and_told_of_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN messages above the limit, greeting included, THEN a viewer stays and gets the others."""
    monkeypatch.setenv("MEMTUI_RUNTIME_DIR", str(tmp_path / "run"))
    large = codec.encode(Refusal("x" * codec.MAX_MESSAGE_BYTES))
    server = Server(lambda history: [codec.encode(HELLO), large], lambda request, viewer: None)
    server.check(time.monotonic_ns())
    assert server.left_out(0) == []
    connection = viewer(server, Request("hello"))
    for _ in range(2):
        server.broadcast(large, frame=False)
    server.broadcast(codec.encode(frame(7)), frame=True)
    server.flush()
    assert received(connection) == [HELLO, frame(7)]
    [event] = server.left_out(3)
    assert (event.name, event.step) == ("agent_error", 3)
    assert f"{len(large) - codec.LENGTH_BYTES:,} bytes" in event.text
    assert server.left_out(4) == []
    connection.close()
    server.close()


def test_nothing_is_sent_before_the_greeting(server: Server) -> None:
    connection = viewer(server, b"")
    server.broadcast(codec.encode(frame(1)), frame=True)
    server.flush()
    assert received(connection) == []
    connection.close()


def test_the_folder_is_private_and_a_bad_one_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    for bad, reason in ((tmp_path / ("x" * 120), "too long"), (tmp_path / "file" / "under", "")):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("MEMTUI_RUNTIME_DIR", str(bad))
        other = Server(lambda history: [], lambda request, viewer: None)
        other.check(time.monotonic_ns())
        assert reason in other.trouble
        assert other.trouble
        other.close()


def test_a_folder_of_the_user_is_not_closed_to_others(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared folder given as the place for sockets is refused, and its mode stays as it was."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("MEMTUI_RUNTIME_DIR", str(shared))
    with pytest.raises(paths.PathError, match="chmod 700"):
        paths.runtime_folder()
    assert shared.stat().st_mode & 0o7777 == 0o1777


def test_who_wakes_a_closed_one_writes_into_nobodys_file(server: Server) -> None:
    """GIVEN the program has opened files since, which have its numbers now, THEN nothing comes out of them."""
    server.close()
    pipes = [os.pipe() for _ in range(4)]
    server.wake()
    server.close()
    try:
        for out, _ in pipes:
            os.set_blocking(out, False)
            with pytest.raises(BlockingIOError):
                os.read(out, 1)
    finally:
        for pipe in pipes:
            for end in pipe:
                os.close(end)


def test_a_viewer_that_reads_nothing_for_too_long_is_let_go_of(server: Server) -> None:
    """GIVEN a stopped viewer and megabytes of messages, which are not dropped, THEN the training does not keep them."""
    stopped, reading = viewer(server, Request("hello")), viewer(server, Request("hello"))
    message = codec.encode(Refusal("x" * (1 << 20)))
    taken, deadline = 0, time.monotonic() + 60
    for number in range(64):
        server.broadcast(message, frame=False)
        while taken < (number + 1) * len(message) and time.monotonic() < deadline:
            server.flush()
            with contextlib.suppress(BlockingIOError):
                taken += len(reading.recv(1 << 20, socket.MSG_DONTWAIT))
    assert server.viewers == 1
    assert taken >= 64 * len(message)
    stopped.close()
    reading.close()
