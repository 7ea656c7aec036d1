"""The monitored program as a monitor holds it: its terminal, its signals, its end."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable
from typing import Optional

from .program import ExitStatus, ProgramError
from .program_client import ProgramClient, ProgramListener, connect

#: Output kept for a listener that comes later; the supervisor has the rest.
_EARLY_BYTES = 4 << 20


class ProgramLink:
    """One connection to a program's supervisor, for the session (its end) and for the output tab (all else).

    Set `listener` (a ProgramListener) to hear the output; what came before is told at once.
    """

    def __init__(self, pid: int, ended: Callable[[Optional[ExitStatus], str], None]) -> None:
        self.pid = pid
        self.exit_status: Optional[ExitStatus] = None
        self.stopped = False
        self.pty = False
        self._ended = ended
        self._client: Optional[ProgramClient] = None
        self._listener: Optional[ProgramListener] = None
        self._early: deque[tuple[bytes, bool]] = deque()
        self._early_bytes = self._early_lost = 0
        self._left = False
        self._closed: Optional[tuple[Optional[str]]] = None

    async def open(self, *, collect: bool = True) -> None:
        """Connects; raises ProgramError. The retained output follows, then the live stream."""
        self._client = await connect(self.pid, self, collect=collect)
        assert self._client.start is not None
        self.pty = self._client.start.pty

    def close(self) -> None:
        """Leaves; the program goes on, and nobody hears of it any more."""
        self._listener, self._left = None, True
        if self._client is not None:
            self._client.close()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet, as far as is known."""
        return self.exit_status is None and self._closed is None

    def interrupt(self) -> None:
        """Sends it what Ctrl-C would: SIGINT to its group."""
        self.send_signal(signal.SIGINT, group=True)

    def kill(self) -> None:
        """Ends it and its group without asking."""
        self.send_signal(signal.SIGKILL, group=True)

    def send_signal(self, number: int, *, group: bool = False) -> None:
        """Sends a signal to the program, or to its process group."""
        if self._client is not None:
            self._client.send_signal(number, group=group)

    def send_input(self, data: bytes) -> None:
        """Types into its terminal."""
        if self._client is not None:
            self._client.send_input(data)

    def send_reply(self, data: bytes) -> None:
        """Answers a query it made of its terminal."""
        if self._client is not None:
            self._client.send_reply(data)

    def resize(self, columns: int, rows: int) -> None:
        """Gives its terminal this size, in cells."""
        if self._client is not None:
            self._client.resize(columns, rows)

    @property
    def listener(self) -> Optional[ProgramListener]:
        """Who hears the output."""
        return self._listener

    @listener.setter
    def listener(self, listener: Optional[ProgramListener]) -> None:
        self._listener = listener
        if listener is None:
            return
        if self._early_lost:
            listener.program_lost(self._early_lost)
        while self._early:
            listener.program_output(*self._early.popleft())
        self._early_bytes = self._early_lost = 0
        if self.exit_status is not None:
            listener.program_exited(self.exit_status)
        if self._closed is not None:
            listener.program_closed(self._closed[0])

    # ProgramListener

    def program_output(self, data: bytes, replayed: bool) -> None:
        if self._listener is not None:
            self._listener.program_output(data, replayed)
            return
        self._early.append((data, replayed))
        self._early_bytes += len(data)
        while self._early_bytes > _EARLY_BYTES:
            lost = len(self._early.popleft()[0])
            self._early_bytes -= lost
            self._early_lost += lost

    def program_lost(self, lost_bytes: int) -> None:
        if self._listener is not None:
            self._listener.program_lost(lost_bytes)
        else:
            self._early_lost += lost_bytes

    def program_stopped(self, stopped: bool) -> None:
        self.stopped = stopped
        if self._listener is not None:
            self._listener.program_stopped(stopped)

    def program_exited(self, status: ExitStatus) -> None:
        self.exit_status = status
        self._ended(status, "")
        if self._listener is not None:
            self._listener.program_exited(status)

    def program_closed(self, reason: Optional[str]) -> None:
        self._closed = (reason,)
        if self.exit_status is None and not self._left:
            self._ended(None, reason or "")
        if self._listener is not None:
            self._listener.program_closed(reason)


__all__ = ["ProgramError", "ProgramLink"]
