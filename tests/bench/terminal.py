"""A terminal that draws nothing: it takes what a program writes, counts it, and can be typed into."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Optional

import psutil
import pyte

COLUMNS, ROWS = 120, 40


class Terminal:
    """Runs a program on a pseudo-terminal of 120x40; with `screen`, what it shows can be read."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, screen: bool = False) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
        self.received = 0
        self.begun = time.perf_counter()
        self.process = subprocess.Popen(
            command, env=dict(environment), stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self._screen = pyte.Screen(COLUMNS, ROWS) if screen else None
        self._stream = pyte.ByteStream(self._screen) if self._screen is not None else None
        self._end, self._tell_end = os.pipe()
        self._thread: Optional[threading.Thread] = None
        if not screen:
            self._thread = threading.Thread(target=self._drain, daemon=True)
            self._thread.start()

    def _drain(self) -> None:
        while self._read(None) is not None:
            pass

    def _read(self, seconds: Optional[float]) -> Optional[bytes]:
        ready, _, _ = select.select([self._master, self._end], [], [], seconds)
        if self._master not in ready:
            return None
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the program has closed its side
            return None
        self.received += len(data)
        return data or None

    def until(self, *words: str, seconds: float = 30.0) -> float:
        """Seconds from the start until the screen shows all of `words`; only with `screen`."""
        assert self._screen is not None
        assert self._stream is not None
        end = self.begun + seconds
        while time.perf_counter() < end:
            data = self._read(end - time.perf_counter())
            at = time.perf_counter()
            if data is None:
                break
            # What a real terminal would be asked, and pyte does not know.
            self._stream.feed(data.replace(b"\x1b[>", b"\x1b["))
            shown = "\n".join(self._screen.display)
            if all(word in shown for word in words):
                return at - self.begun
        raise TimeoutError("\n".join(line.rstrip() for line in self._screen.display if line.strip()))

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self._master, keys.encode())

    def cpu_seconds(self) -> float:
        """Processor time of the program and its threads so far."""
        total = 0
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{self.process.pid}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
        return total / 1e9

    def rss_bytes(self) -> int:
        """Its resident memory."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def close(self) -> None:
        """Ends the program and the terminal."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        os.write(self._tell_end, b"x")
        if self._thread is not None:
            self._thread.join()
        for descriptor in (self._master, self._end, self._tell_end):
            os.close(descriptor)
