"""The agent's socket: several viewers, none of which can hold it up."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pathlib
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Optional

from ..wire import codec, paths
from ..wire.frames import PROTOCOL, Event, Refusal, Request

#: Frames that wait for a slow viewer (50 s at 10 Hz); older ones are lost and counted.
_QUEUE_FRAMES = 500
_CHECK_NS = 1_000_000_000
_WAKING_SECONDS = 0.5
_LOST = b'"lost_frames":0'


# Python's own `send` lets go of the interpreter's lock, which the training takes at once; to get it back the agent
# then interrupts it once more. Two switches of threads cost more than the few µs that a call without waiting takes.
_send = ctypes.PyDLL(None, use_errno=True).send
_send.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
_send.restype = ctypes.c_ssize_t
# For the same reason from the start, where the system can: each call more takes a busy program's lock once more.
_NONBLOCKING = getattr(socket, "SOCK_NONBLOCK", 0)
#: What is kept for a viewer that does not read; then it is let go of, and gets the history when it comes again.
_PAST_BYTES = 32 << 20
_AT_ONCE = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)


#: Further users that may connect, as this process sees them: root of the machine is another one in a container.
more_peers: set[int] = set()


class _Viewer:
    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection, self.pid = connection, pid
        self.events = selectors.EVENT_READ  # that are waited for
        self.splitter = codec.Splitter()
        self.greeted = self.passive = False
        self.lost_frames = 0
        self._head = b""  # partly sent
        self._past: deque[bytes] = deque()  # hello, history, events: all of it, or the viewer goes
        self._past_bytes = 0
        self._frames: deque[bytes] = deque()

    @property
    def waiting(self) -> bool:
        return bool(self._head or self._past or self._frames)

    @property
    def behind(self) -> bool:
        """Whether its socket did not take all at the last flush."""
        return bool(self._head)

    @property
    def overfull(self) -> bool:
        return self._past_bytes > _PAST_BYTES

    def put(self, message: bytes) -> None:
        self._past.append(message)
        self._past_bytes += len(message)

    def put_frame(self, message: bytes) -> None:
        if len(self._frames) >= _QUEUE_FRAMES:
            self._frames.popleft()
            self.lost_frames += 1
        if self.lost_frames:
            body = message[4:].replace(_LOST, b'"lost_frames":%d' % self.lost_frames, 1)
            message = struct.pack("!I", len(body)) + body
        self._frames.append(message)

    def flush(self) -> bool:
        """Sends what the socket takes; True while something is left."""
        while True:
            if not self._head:
                queue = self._past or self._frames
                if not queue:
                    return False
                head = queue.popleft()
                if queue:
                    batch = bytearray(head)
                    while queue and len(batch) < 65_536:
                        batch += queue.popleft()
                    head = bytes(batch)
                if queue is self._past:
                    self._past_bytes -= len(head)
                self._head = head
            sent = _send(self.connection.fileno(), self._head, len(self._head), _AT_ONCE)
            if sent < 0:
                number = ctypes.get_errno()
                if number in (errno.EAGAIN, errno.EINTR):
                    return True
                raise OSError(number, os.strerror(number))
            self._head = self._head[sent:]


class Server:
    """Listens for viewers of this user and of root; runs in the agent's thread only.

    `greeting` gives the messages a new viewer gets first; `requested` is called with requests other than hello, and
    with who asks: `send`, `has` and `waits` take that.
    """

    def __init__(self, greeting: Callable[[bool], list[bytes]], requested: Callable[[Request, Any], None]) -> None:
        self._greeting, self._requested = greeting, requested
        # poll and not epoll: a forked child would take sockets out of its parent's epoll set.
        self._selector = selectors.PollSelector()
        self._wake_out, self._wake_in = os.pipe()
        self._waking, self._closed = threading.Lock(), False
        for end in (self._wake_out, self._wake_in):
            os.set_blocking(end, False)
        self._selector.register(self._wake_out, selectors.EVENT_READ, None)
        self._listener: Optional[socket.socket] = None
        self._path: Optional[pathlib.Path] = None
        self._identity: Any = None
        self._checked_ns = 0
        self._viewers: dict[socket.socket, _Viewer] = {}
        self.trouble = ""  # why there is no socket
        self._left_out_bytes = 0  # of the first message that no viewer would take, so that it was not sent
        self._left_out_told = False

    @property
    def path(self) -> Optional[pathlib.Path]:
        """Where it listens; None where it does not (yet)."""
        return self._path if self._listener is not None else None

    @property
    def viewers(self) -> int:
        """How many have said hello, and have somebody who looks at them."""
        return sum(viewer.greeted and not viewer.passive for viewer in self._viewers.values())

    @property
    def viewer_pids(self) -> frozenset[int]:
        """The processes of the same, where the system tells them."""
        watching = (viewer for viewer in self._viewers.values() if viewer.greeted and not viewer.passive)
        return frozenset(viewer.pid for viewer in watching if viewer.pid)

    @property
    def waiting(self) -> bool:
        """Whether something that was queued for a viewer is not sent yet."""
        return any(viewer.waiting for viewer in self._viewers.values())

    def wake(self) -> None:
        """Ends the wait in `poll`, from any thread."""
        if not self._waking.acquire(blocking=False):
            return  # somebody is doing it, or it is being closed
        try:
            # Once it is closed, another file of the program's may have the number.
            if not self._closed:
                os.write(self._wake_in, b"x")
        except OSError:
            return
        finally:
            self._waking.release()

    def check(self, now_ns: int) -> None:
        """Makes the socket if it is not there (any more): session managers and cleaners remove such files."""
        if now_ns - self._checked_ns < _CHECK_NS:
            return
        self._checked_ns = now_ns
        if self._listener is not None and self._path is not None:
            try:
                info = os.stat(self._path)
                if (info.st_dev, info.st_ino) == self._identity:
                    return
            except OSError:
                pass
            self._close_listener()
        try:
            self._listen()
            self.trouble = ""
        except (OSError, paths.PathError) as error:
            self.trouble = str(error)

    def _listen(self) -> None:
        path = paths.agent_socket_path(os.getpid())
        # Bound under another name and then moved: nobody meets a socket that does not listen yet, and a stale one of
        # an earlier process of this pid is replaced.
        temporary = path.with_name(f".{os.getpid()}")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | _NONBLOCKING)
        try:
            try:
                listener.bind(os.fspath(temporary))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                os.unlink(temporary)
                listener.bind(os.fspath(temporary))
            os.chmod(temporary, 0o600)
            listener.listen(8)
            if not _NONBLOCKING:
                listener.setblocking(False)
            os.rename(temporary, path)
            info = os.stat(path)
        except OSError:
            listener.close()
            raise
        self._listener, self._path, self._identity = listener, path, (info.st_dev, info.st_ino)
        self._selector.register(listener, selectors.EVENT_READ, None)

    def poll(self, timeout_ns: int) -> None:
        """Serves viewers for up to `timeout_ns`, or until woken."""
        for key, events in self._selector.select(max(0, timeout_ns) / 1e9):
            if key.fileobj == self._wake_out:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_out, 4096)
            elif key.fileobj is self._listener:
                self._accept()
            elif key.data is not None:
                self._serve(key.data, events)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        pid, uid = _peer(connection)
        if uid not in (os.geteuid(), 0, *more_peers):
            connection.close()
            return
        viewer = _Viewer(connection, pid)
        self._viewers[connection] = viewer
        self._selector.register(connection, selectors.EVENT_READ, viewer)

    def _serve(self, viewer: _Viewer, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                data = viewer.connection.recv(65_536)
                if not data:
                    raise ConnectionResetError
                for body in viewer.splitter.feed(data):
                    self._answer(viewer, codec.decode(body))
            self._flush(viewer)
        except BlockingIOError:
            return
        except (OSError, codec.CodecError):
            self._drop(viewer)

    def _answer(self, viewer: _Viewer, request: Any) -> None:
        if not isinstance(request, Request):
            raise codec.CodecError("not a request")
        if request.protocol != PROTOCOL:
            text = f"this program's agent speaks protocol {PROTOCOL}, the viewer {request.protocol}"
            viewer.put(codec.encode(Refusal(f"{text}; use the memtui that started the program, or restart it")))
        elif request.name == "hello":
            for message in filter(self._fits, self._greeting(request.history)):
                viewer.put(message)
            viewer.greeted, viewer.passive = True, request.passive
        else:
            self._requested(request, viewer)

    def _fits(self, message: bytes) -> bool:
        """Whether a viewer takes it: at a larger one it would leave, come again and get the same."""
        size = len(message) - codec.LENGTH_BYTES
        if size > codec.MAX_MESSAGE_BYTES:
            self._left_out_bytes = self._left_out_bytes or size
            return False
        return True

    def left_out(self, step: int) -> list[Event]:
        """Once, after a message was too large to be sent: the event that says so."""
        if self._left_out_told or not self._left_out_bytes:
            return []
        self._left_out_told = True
        text = f"a message of {self._left_out_bytes:,} bytes was too large to be sent: it is left out"
        return [Event("agent_error", time.monotonic_ns(), step, "", text=text)]

    def broadcast(self, message: bytes, *, frame: bool) -> None:
        """Queues a message for every viewer, where it is not too large; `flush` sends."""
        if not self._fits(message):
            return
        for viewer in list(self._viewers.values()):
            if viewer.overfull:
                self._drop(viewer)
            elif viewer.greeted:
                if frame:
                    viewer.put_frame(message)
                else:
                    viewer.put(message)

    def send(self, viewer: Any, message: bytes) -> None:
        """Queues a message for one viewer, which may have gone."""
        if self._fits(message):
            viewer.put(message)

    def has(self, viewer: Any) -> bool:
        """Whether a viewer is still there."""
        return viewer.connection in self._viewers

    def waits(self, viewer: Any) -> bool:
        """Whether it takes things more slowly than they come."""
        return bool(viewer.behind)

    def flush(self) -> None:
        """Sends what is queued and goes out without waiting."""
        for viewer in list(self._viewers.values()):
            try:
                self._flush(viewer)
            except OSError:
                self._drop(viewer)

    def _flush(self, viewer: _Viewer) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if viewer.flush() else 0)
        if wanted != viewer.events:
            viewer.events = wanted
            self._selector.modify(viewer.connection, wanted, viewer)

    def _drop(self, viewer: _Viewer) -> None:
        if self._viewers.pop(viewer.connection, None) is not None:
            self._selector.unregister(viewer.connection)
            viewer.connection.close()

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def close(self, *, unlink: bool = True) -> None:
        """Closes everything; a forked child closes its copies without removing its parent's file."""
        if self._closed:
            return
        if unlink and self._path is not None and self._listener is not None:
            with contextlib.suppress(OSError):
                info = os.stat(self._path)
                if (info.st_dev, info.st_ino) == self._identity:
                    os.unlink(self._path)
        # Whoever sees the connection end finds nobody listening any more.
        self._close_listener()
        for viewer in list(self._viewers.values()):
            self._drop(viewer)
        self._selector.close()
        # Should the exception of a signal handler have left it locked, nobody can be writing any more.
        self._waking.acquire(timeout=_WAKING_SECONDS)
        self._closed = True
        self._waking.release()
        for end in (self._wake_out, self._wake_in):
            with contextlib.suppress(OSError):
                os.close(end)


def _peer(connection: socket.socket) -> tuple[int, int]:
    """(pid, uid); the pid is 0 where it is not known."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, os.geteuid()  # the folder's mode has let only this user in
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    return int(pid), int(uid)
