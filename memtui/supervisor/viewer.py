"""One viewer's connection, seen from the supervisor."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field

from memtui.supervisor import framing, messages
from memtui.supervisor.messages import Kind
from memtui.supervisor.ring import CHUNK_BYTES, OutputRing

#: A viewer that reads as fast as it is sent to must not keep the supervisor from draining the program.
MAX_FRAMES_AT_ONCE = 8


@dataclass
class Story:
    """What there is to tell every viewer: the output, and the frames that follow certain bytes of it."""

    ring: OutputRing
    #: The START frame; the program has been started before any viewer can connect.
    start: bytes
    #: The program is stopped by a signal.
    stopped: bool = False
    #: The EXIT frame and the offset it follows.
    exit: tuple[int, bytes] | None = None
    #: Nobody holds the terminal any more: nothing follows `ring.end`.
    ended: bool = False


@dataclass(eq=False)  # two connections are never the same viewer
class Viewer:
    """A connection that gets the retained output, then the live stream, at whatever pace it reads.

    It holds one frame at most besides small notices: what it has not read stays in the ring, or is lost to it.
    """

    socket: socket.socket
    story: Story
    greeted: bool = False
    _decoder: framing.Decoder = field(default_factory=framing.Decoder)
    _outgoing: bytearray = field(default_factory=bytearray)
    _position: int = 0
    _told_exit: bool = False
    _told_end: bool = False

    def greet(self) -> None:
        """Queue the hello and the program's start."""
        ring = self.story.ring
        self._position = ring.start
        self._outgoing += messages.write(
            Kind.HELLO,
            protocol=messages.PROTOCOL,
            version=messages.VERSION,
            supervisor_pid=os.getpid(),
            history_start=ring.start,
            history_end=ring.end,
            exited=self.story.exit is not None,
        )
        self._outgoing += self.story.start
        if self.story.stopped:
            self.tell_stopped()

    def tell_stopped(self) -> None:
        """Queue whether the program is stopped."""
        # A viewer that has stopped reading learns of the latest state when it comes back, not of every change.
        if len(self._outgoing) < 2 * CHUNK_BYTES:
            self._outgoing += messages.write(Kind.STOPPED, stopped=self.story.stopped)

    def send(self) -> bool:
        """Send what the socket takes now; whether something is left to send. Raises OSError when the peer is gone."""
        for _ in range(MAX_FRAMES_AT_ONCE):
            if not self._outgoing and not self._next_frame():
                return False
            try:
                sent = self.socket.send(self._outgoing)
            except (BlockingIOError, InterruptedError):
                return True
            del self._outgoing[:sent]
        return True

    def _next_frame(self) -> bool:
        ring = self.story.ring
        # Output forgotten before it was sent: the viewer sees the gap in the offsets.
        self._position = max(self._position, ring.start)
        limit = ring.end
        if self.story.exit is not None and not self._told_exit:
            limit, frame = self.story.exit
            if self._position >= limit:
                self._told_exit = True
                self._outgoing += frame
                return True
        data = ring.read(self._position, min(CHUNK_BYTES, limit - self._position))
        if data:
            self._outgoing += messages.write_output(self._position, data)
            self._position += len(data)
            return True
        if self.story.ended and self._told_exit and not self._told_end:
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
        if frames and not self.greeted:
            kind, payload = frames.pop(0)
            hello = messages.read(payload) if kind == Kind.HELLO else {}
            if hello.get("protocol") != messages.PROTOCOL or hello.get("version") != messages.VERSION:
                # Our own hello tells the viewer which version would be right.
                raise messages.MessageError("no hello of this protocol and version")
            self.greeted = True
        return frames
