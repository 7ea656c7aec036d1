"""The loop: drain the program, serve the viewers, wait for the end."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import socket
import time
from typing import Callable

from memtui.supervisor import child, framing, messages, queries
from memtui.supervisor.listener import Listener
from memtui.supervisor.messages import Kind, MessageError
from memtui.supervisor.viewer import Story, Viewer
from memtui.wire.paths import PathError

READ_BYTES = 64 * 1024

#: Typed or pasted text that the program has not read yet; the kernel itself keeps some 4 KiB.
MAX_INPUT_BYTES = 1 << 20

#: A fast program's output goes out in pieces of this age, so that a viewer wakes 100 times a second and not 1,000.
FLUSH_SECONDS = 0.01

MAX_VIEWERS = 32

#: Bytes drained before the exit status is told, should grandchildren go on writing without end.
MAX_LAST_WORDS_BYTES = 16 << 20


class Supervisor:
    """Owns a started program's terminal until the last of its descendants is done with it.

    Times are seconds of `time.monotonic`.
    """

    def __init__(
        self,
        program: child.Child,
        story: Story,
        listener: Listener,
        *,
        keep_seconds: float,
        check_seconds: float,
        grace_seconds: float,
    ) -> None:
        self._program = program
        self._story = story
        self._listener = listener
        self._keep_seconds = keep_seconds
        self._check_seconds = check_seconds
        self._grace_seconds = grace_seconds
        self._master = program.master
        self._input = bytearray()
        self._viewers: list[Viewer] = []
        self._selector = selectors.DefaultSelector()
        self._collected = False
        self._dismissed = False
        self._exited_at: float | None = None
        self._quiet_since = time.monotonic()
        self._next_check = time.monotonic() + check_seconds
        self._flushed_at = 0.0
        self._unflushed = False

    def run(self, wakeup: int) -> None:
        """Return when nothing is left to do; `wakeup` delivers the numbers of received signals, one a byte."""
        self._register(wakeup, selectors.EVENT_READ, lambda _: self._take_signals(wakeup))
        if self._master is not None:
            self._register(self._master, selectors.EVENT_READ, self._serve_master)
        else:
            self._story.ended = True  # the streams are the caller's: there is nothing to drain
        self._listen()
        self._reap()  # it may have ended before its signal could be heard
        while not self._finished():
            for key, events in self._selector.select(self._timeout()):
                serve: Callable[[int], None] = key.data
                serve(events)
            now = time.monotonic()
            if self._unflushed and now - self._flushed_at >= FLUSH_SECONDS:
                self._flush(now)
            if now >= self._next_check:
                self._next_check = now + self._check_seconds
                self._check_socket()
        self._listener.close()

    # Time

    def _timeout(self) -> float:
        now = time.monotonic()
        moments = [self._next_check]
        if self._unflushed:
            moments.append(self._flushed_at + FLUSH_SECONDS)
        if self._exited_at is not None and now < self._exited_at + self._keep_seconds:
            moments.append(self._exited_at + self._keep_seconds)
            if self._collected and not self._viewers:
                moments.append(self._quiet_since + self._grace_seconds)
        return max(0.0, min(moments) - now)

    def _finished(self) -> bool:
        if self._dismissed:
            return True
        # While descendants hold the terminal it must stay open: closing it would kill them.
        if self._exited_at is None or self._master is not None:
            return False
        now = time.monotonic()
        if now - self._exited_at >= self._keep_seconds:
            return True
        return self._collected and not self._viewers and now - self._quiet_since >= self._grace_seconds

    # The program

    def _serve_master(self, events: int) -> None:
        if events & selectors.EVENT_READ:
            self._drain_once()
        if events & selectors.EVENT_WRITE and self._master is not None:
            self._write_input()

    def _drain_once(self) -> int:
        """Read what is there, at most once; the number of bytes, 0 where there is nothing (now or ever)."""
        if self._master is None:
            return 0
        try:
            data = os.read(self._master, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""
        if not data:
            # The last descriptor of the other side is closed. Not before the program's own end: we hold one too.
            self._selector.unregister(self._master)
            os.close(self._master)
            self._master = None
            self._story.ended = True
            self._unflushed = True
            return 0
        self._story.ring.append(data)
        if not self._viewers:
            # Somebody has to answer for the terminal: a program may wait for the cursor's position for ever.
            self._enter(queries.answers(data))
        now = time.monotonic()
        if now - self._flushed_at >= FLUSH_SECONDS:
            self._flush(now)
        else:
            self._unflushed = True
        return len(data)

    def _enter(self, data: bytes) -> None:
        if self._master is None or not data:
            return
        self._input += data[: max(0, MAX_INPUT_BYTES - len(self._input))]
        self._write_input()

    def _write_input(self) -> None:
        assert self._master is not None
        try:
            del self._input[: os.write(self._master, self._input)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._input.clear()  # nobody is left who could read it
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._input else 0)
        self._selector.modify(self._master, wanted, self._serve_master)

    def _take_signals(self, wakeup: int) -> None:
        try:
            numbers = os.read(wakeup, 4096)
        except (BlockingIOError, InterruptedError):
            return
        if signal.SIGTERM in numbers:
            # A machine going down, or somebody who takes this process for the program itself; after the program's
            # end, somebody who does not want its status.
            self._dismissed = self._exited_at is not None
            self._signal(signal.SIGTERM, group=False)
        self._reap()

    def _reap(self) -> None:
        while self._exited_at is None:
            try:
                pid, status = os.waitpid(self._program.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except InterruptedError:
                continue
            if pid == 0:
                return
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                self._story.stopped = os.WIFSTOPPED(status)
                for viewer in self._viewers:
                    viewer.tell_stopped()
                self._unflushed = True
            else:
                self._record_exit(status)

    def _record_exit(self, status: int) -> None:
        self._exited_at = self._quiet_since = time.monotonic()
        # All that it wrote is in the terminal's buffer by now, and comes before its exit status.
        budget = MAX_LAST_WORDS_BYTES
        while budget > 0:
            count = self._drain_once()
            if count == 0:
                break
            budget -= count
        killed = os.WIFSIGNALED(status)
        frame = messages.write(
            Kind.EXIT,
            code=None if killed else os.WEXITSTATUS(status),
            signal=os.WTERMSIG(status) if killed else None,
            core_dumped=killed and os.WCOREDUMP(status),
            ended_at=time.time(),
        )
        self._story.stopped = False
        self._story.exit = (self._story.ring.end, frame)
        if self._program.slave is not None:
            os.close(self._program.slave)
        self._flush(self._exited_at)

    def _signal(self, number: int, *, group: bool) -> None:
        # Not reaped yet, so the pid is still this program's.
        if self._exited_at is None:
            # It may be dead but not reaped, or have become another user's (su).
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if group else os.kill)(self._program.pid, number)

    # The viewers

    def _flush(self, now: float) -> None:
        self._flushed_at = now
        self._unflushed = False
        for viewer in list(self._viewers):
            self._send(viewer)

    def _send(self, viewer: Viewer) -> None:
        left = viewer.send()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if left else 0)
        key = self._selector.get_key(viewer.socket)
        if key.events != wanted:
            self._selector.modify(viewer.socket, wanted, key.data)

    def _serve_viewer(self, viewer: Viewer, events: int) -> None:
        if viewer not in self._viewers:
            return
        if events & selectors.EVENT_READ:
            try:
                frames = viewer.receive()
                for kind, payload in frames or ():
                    self._obey(viewer, kind, payload)
            except (OSError, framing.FramingError, MessageError):
                frames = None
            if frames is None:
                self._drop(viewer)
                return
        if events & selectors.EVENT_WRITE:
            self._send(viewer)

    def _obey(self, viewer: Viewer, kind: int, payload: bytes) -> None:
        if kind == Kind.INPUT or (kind == Kind.REPLY and viewer is self._viewers[0]):
            # Several viewers show one terminal, and it answers once: the one that has been there longest does.
            self._enter(payload)
        elif kind == Kind.RESIZE:
            fields = messages.read(payload)
            columns = messages.integer(fields, "columns", 1, 0xFFFF)
            rows = messages.integer(fields, "rows", 1, 0xFFFF)
            if self._master is not None:
                child.set_size(self._master, columns, rows)
        elif kind == Kind.SIGNAL:
            fields = messages.read(payload)
            number = messages.integer(fields, "signal", 1, signal.NSIG - 1)
            self._signal(number, group=fields.get("group") is True)
        elif kind == Kind.COLLECTED and self._exited_at is not None:
            self._collected = True

    def _drop(self, viewer: Viewer) -> None:
        self._selector.unregister(viewer.socket)
        viewer.socket.close()
        self._viewers.remove(viewer)
        self._quiet_since = time.monotonic()

    # The socket

    def _listen(self) -> None:
        assert self._listener.socket is not None
        self._register(self._listener.socket, selectors.EVENT_READ, lambda _: self._accept())

    def _accept(self) -> None:
        connection = self._listener.accept()
        if connection is None:
            return
        if len(self._viewers) >= MAX_VIEWERS:
            connection.close()
            return
        viewer = Viewer(connection, self._story)
        self._viewers.append(viewer)
        self._register(connection, selectors.EVENT_READ, lambda events: self._serve_viewer(viewer, events))
        viewer.greet()
        self._send(viewer)

    def _check_socket(self) -> None:
        if self._listener.intact():
            return
        if self._listener.socket is not None:
            self._selector.unregister(self._listener.socket)
        self._listener.close()
        try:
            self._listener.open()
        except (OSError, PathError):
            return  # the folder may come back, at the user's next login at the latest
        self._listen()

    def _register(self, source: int | socket.socket, events: int, serve: Callable[[int], None]) -> None:
        self._selector.register(source, events, serve)
