"""One viewer's connection, seen from the supervisor."""

from __future__ import annotations

import os
import socket

from memtui.supervisor import framing, messages
from memtui.supervisor.messages import Kind
from memtui.supervisor.ring import CHUNK_BYTES, OutputRing

#: A viewer that reads as fast as it is sent to must not keep the supervisor from draining the program.
MAX_FRAMES_AT_ONCE = 8


class Story:
    """What there is to tell every viewer: the output, and the frames that follow certain bytes of it.

    `start` is the START frame: the program has been started before any viewer can connect.
    """

    def __init__(self, ring: OutputRing, start: bytes) -> None:
        self.ring = ring
        self.start = start
        #: The program is stopped by a signal.
        self.stopped = False
        #: The EXIT frame and the offset it follows.
        self.exit: tuple[int, bytes] | None = None
        #: Nobody holds the terminal any more: nothing follows `ring.end`.
        self.ended = False


class Viewer:
    """A connection that gets the retained output, then the live stream, at whatever pace it reads.

    It holds one frame at most besides small notices: what it has not read stays in the ring, or is lost to it.
    """

    def __init__(self, connection: socket.socket, story: Story) -> None:
        self.socket = connection
        self._story = story
        self._greeted = False
        self._decoder = framing.Decoder()
        self._outgoing = bytearray()
        self._position = story.ring.start
        self._gone = False
        self._told_exit = False
        self._told_end = False

    def greet(self) -> None:
        """Queue the hello and the program's start."""
        ring = self._story.ring
        self._outgoing += messages.write(
            Kind.HELLO,
            protocol=messages.PROTOCOL,
            version=messages.VERSION,
            supervisor_pid=os.getpid(),
            history_start=ring.start,
            history_end=ring.end,
            exited=self._story.exit is not None,
        )
        self._outgoing += self._story.start
        if self._story.stopped:
            self.tell_stopped()

    def tell_stopped(self) -> None:
        """Queue whether the program is stopped."""
        # A viewer that has stopped reading learns of the latest state when it comes back, not of every change.
        if len(self._outgoing) < 2 * CHUNK_BYTES:
            self._outgoing += messages.write(Kind.STOPPED, stopped=self._story.stopped)

    def send(self) -> bool:
        """Send what the socket takes now; whether something is left to send.

        Nothing is sent any more to a peer that has gone, but what it said last is still there to be received.
        """
        for _ in range(0 if self._gone else MAX_FRAMES_AT_ONCE):
            if not self._outgoing and not self._next_frame():
                return False
            try:
                sent = self.socket.send(self._outgoing)
            except (BlockingIOError, InterruptedError):
                return True
            except OSError:
                self._gone = True
                break
            del self._outgoing[:sent]
        return not self._gone

    def _next_frame(self) -> bool:
        ring = self._story.ring
        # Output forgotten before it was sent: the viewer sees the gap in the offsets.
        self._position = max(self._position, ring.start)
        limit = ring.end
        if self._story.exit is not None and not self._told_exit:
            limit, frame = self._story.exit
            if self._position >= limit:
                self._told_exit = True
                self._outgoing += frame
                return True
        data = ring.read(self._position, min(CHUNK_BYTES, limit - self._position))
        if data:
            self._outgoing += messages.write_output(self._position, data)
            self._position += len(data)
            return True
        if self._story.ended and self._told_exit and not self._told_end:
            self._told_end = True
            self._outgoing += messages.write(Kind.END)
            return True
        return False

    def receive(self) -> list[tuple[int, bytes]] | None:
        """The frames that have arrived; None where the viewer has gone. Raises FramingError, MessageError, OSError."""
        try:
            data = self.socket.recv(CHUNK_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        if not data:
            return None
        frames = self._decoder.feed(data)
        if frames and not self._greeted:
            kind, payload = frames.pop(0)
            hello = messages.read(payload) if kind == Kind.HELLO else {}
            if hello.get("protocol") != messages.PROTOCOL or hello.get("version") != messages.VERSION:
                # Our own hello tells the viewer which version would be right.
                raise messages.MessageError("no hello of this protocol and version")
            self._greeted = True
        return frames
