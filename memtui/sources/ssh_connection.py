"""One ssh connection with a relay at its other end, made while prompts can still be answered.

The user's own client does everything: configuration, keys, jump hosts, agent. It asks its questions on the terminal
itself; what else it says is passed on, cleaned.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Optional

from memtui.inject.words import printable
from memtui.wire.relaying import GREETING, TOLD, VERSION, Frames, LinkError, Unpacker, credit, read_told, told

from . import ssh_archive
from .ssh_address import Address
from .ssh_words import REFUSED_KEY, key_words, last_reason

#: The user's ssh, with options of it if need be: "ssh -F /path/to/config".
SSH_VARIABLE = "MEMTUI_SSH"
#: For those who may have to type something, and for those who cannot.
_ASKING_SECONDS, _BATCH_SECONDS, _ANSWER_SECONDS = 180.0, 45.0, 30.0
#: What login scripts may print before the relay does.
_MOST_NOISE = 64 << 10
_PINGS = 4
_LOOK_SECONDS = 0.25
_KEPT_LINES, _LONGEST_LINE = 20, 1200
#: Nothing listens because of this, here or there, whatever the configuration says of this host.
_OPTIONS = ("-T", "-x", "-a", "-o", "ClearAllForwardings=yes", "-o", "PermitLocalCommand=no")
_BATCH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=20")


class SshError(Exception):
    """There is no connection; the message is one line for the user. `final` where trying again is of no use."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(printable(message))
        self.final = final


def has_terminal() -> bool:
    """Whether there is one that ssh could ask on."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


class Words:
    """What ssh says on its standard error: the last lines, as harmless text."""

    def __init__(self, stream: int, show: Callable[[str], None]) -> None:
        self.show: Optional[Callable[[str], None]] = show
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        # Its own, which nobody closes while it is read: another file would get the number.
        self._stream, self._rest = os.dup(stream), b""
        self._thread = threading.Thread(target=self._run, name="memtui-ssh", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            data = os.read(self._stream, 4096)
            if not data:
                self._take(self._rest)
                os.close(self._stream)
                return
            *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
            self._rest = self._rest[-_LONGEST_LINE:]
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        text = printable(line.decode(errors="replace").replace("\t", " ")).strip()
        if text:
            self.lines.append(text)
            if self.show is not None:
                self.show(text)

    def last(self) -> str:
        """The last line that is a reason, once all is said; or nothing."""
        self._thread.join(1.0)
        return last_reason(list(self.lines))


class Connection:
    """Bytes to and from a relay. Until a link takes it over its calls block; `facts` is what the relay said of itself,
    `pings` when such were sent, what the clock there was, and when the answer came.
    """

    def __init__(
        self,
        address: Address,
        *,
        batch: bool,
        show: Callable[[str], None] = lambda _text: None,
        abort: Optional[threading.Event] = None,
    ) -> None:
        """Connects; raises SshError, also once `abort` is set."""
        self.address = address
        self.frames, self.unpacker = Frames(), Unpacker()
        self.facts: dict[str, Any] = {}
        self.pings: list[tuple[int, int, int]] = []
        self._held: deque[tuple[int, int, bytes]] = deque()
        self._number = 0
        self._abort, self._batch = abort, batch
        self._process = _started(address, batch)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.sink, self.source = self._process.stdin.fileno(), self._process.stdout.fileno()
        self.words = Words(self._process.stderr.fileno(), show)
        try:
            self._begin(_BATCH_SECONDS if batch else _ASKING_SECONDS)
        except (LinkError, ValueError, TypeError, OSError) as error:
            self.close()
            raise SshError(f"{address.label}: what answers there is no memtui relay ({error})", final=True) from None
        except BaseException:
            self.close()
            raise
        self.words.show = None

    def _begin(self, seconds: float) -> None:
        nonce = secrets.token_hex(8)
        rest = self._greeted(ssh_archive.archive(nonce), GREETING + nonce.encode() + b"\n", seconds)
        self._hold(rest)
        ready = self._until(lambda plain: plain.get("is") == "ready", "the relay")
        if ready.get("version") != VERSION:
            raise SshError(f"{self.address.label}: the relay there is of another version", final=True)
        self.facts = ready
        for _ in range(_PINGS):
            self._number += 1
            before = time.monotonic_ns()
            pong = self.ask(do="ping")
            self.pings.append((before, _whole(pong.get("time_ns")), time.monotonic_ns()))

    def _greeted(self, sent: bytes, greeting: bytes, seconds: float) -> bytes:
        """Sends, and waits for the greeting; what has come behind it."""
        end, taken = time.monotonic() + seconds, b""
        os.set_blocking(self.sink, False)
        view = memoryview(sent)
        while True:
            left = end - time.monotonic()
            if self._abort is not None and self._abort.is_set():
                raise SshError(f"{self.address.label}: given up")
            wait = max(0.0, min(left, _LOOK_SECONDS))
            readable, writable, _ = select.select([self.source], [self.sink] if view else [], [], wait)
            if writable:
                with contextlib.suppress(BlockingIOError):
                    try:
                        view = view[os.write(self.sink, view[: 1 << 16]) :]
                    except BrokenPipeError:
                        view = memoryview(b"")
            if readable:
                data = os.read(self.source, 1 << 16)
                taken += data
                if greeting in taken:
                    os.set_blocking(self.sink, True)
                    return taken.partition(greeting)[2]
                if not data or len(taken) > _MOST_NOISE:
                    raise self._no_relay(taken, ended=not data)
            elif not writable and left <= 0:
                raise self.failed(f"nothing was heard of a relay there within {seconds:.0f} s")

    def _no_relay(self, taken: bytes, *, ended: bool) -> SshError:
        label = self.address.label
        for line in taken.splitlines():
            if line.startswith(ssh_archive.NO_PYTHON):
                old = line[len(ssh_archive.NO_PYTHON) :].decode(errors="replace").replace(":", " ").strip()
                there = f" (there is {old})" if old else ""
                return SshError(f"{label}: no Python 3.9 or newer on the PATH there{there}", final=True)
        if not ended:
            return SshError(f"{label}: {len(taken):,} bytes came and no relay: dropped", final=True)
        first = taken.strip().splitlines()[:1]
        said = first[0].decode(errors="replace") if first else "the connection was closed before the relay answered"
        return self.failed(said)

    def failed(self, otherwise: str) -> SshError:
        """Why there is no connection (any more): ssh's own last words, else that."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        text = self.words.last() if self._process.poll() not in (None, 0) else ""
        final = any(words in text for words in ("Permission denied", REFUSED_KEY, "authentication failures"))
        if REFUSED_KEY in text:
            hint = key_words(list(self.words.lines), self.address, _ssh(), asked=not self._batch)
            text = f"{text.rstrip('.')}: {hint}" if hint else text
        return SshError(f"{self.address.label}: {text or otherwise}", final=final)

    # Asked one after the other, before a link has taken it over

    def ask(self, **fields: Any) -> dict[str, Any]:
        """The answer to a question; raises SshError and LinkError."""
        self._number += 1
        number = self._number
        self.write(told(number=number, **fields))
        return self._until(lambda plain: plain.get("number") == number, "an answer")

    def find(self, roots: list[Optional[int]]) -> list[list[dict[str, Any]]]:
        """What there is of each of `roots`, None being all; raises SshError and LinkError."""
        self.write(told(do="find", roots=roots))
        found = self._until(lambda plain: plain.get("is") == "found", "a list of processes").get("found")
        if type(found) is not list or len(found) != len(roots) or any(type(each) is not list for each in found):
            raise LinkError("a list that is none")
        return found

    def enter(self, pid: int, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Gets the agent into a process, and tells how far that is; how it ended. Ctrl-C takes a queued call back.

        Raises SshError and LinkError.
        """
        self.write(told(do="enter", pid=pid))
        cancelled = False
        while True:
            try:
                plain = self._until(lambda plain: plain.get("pid") == pid, "an answer", seconds=None)
                if plain.get("is") == "entered":
                    return plain
                tell(plain)
            except KeyboardInterrupt:
                if cancelled:
                    raise
                cancelled = True
                self.write(told(do="cancel", pid=pid))

    def write(self, data: bytes) -> None:
        """Sends all of it; raises SshError."""
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self.sink, view) :]
        except OSError:
            raise self.failed("the connection was closed") from None

    def _until(
        self, wanted: Callable[[dict[str, Any]], bool], what: str, *, seconds: Optional[float] = _ANSWER_SECONDS
    ) -> dict[str, Any]:
        """The next object for which `wanted` holds; without `seconds` for as long as the far end answers pings."""
        pinged = False
        end = time.monotonic() + (_ANSWER_SECONDS if seconds is None else seconds)
        while True:
            while self._held:
                kind, _, payload = self._held.popleft()
                if kind != TOLD:
                    raise LinkError("a frame that nobody asked for")
                plain = read_told(payload)
                if wanted(plain):
                    return plain
                if seconds is None and plain.get("is") == "pong":
                    pinged, end = False, time.monotonic() + _ANSWER_SECONDS
            left = end - time.monotonic()
            if left <= 0:
                raise self.failed(f"{what} did not come within {_ANSWER_SECONDS:.0f} s")
            if seconds is None and left < _ANSWER_SECONDS / 2 and not pinged:
                pinged = True
                self.write(told(do="ping", number=0))
            if not select.select([self.source], [], [], min(left, _ANSWER_SECONDS / 4))[0]:
                continue
            data = os.read(self.source, 1 << 16)
            if not data:
                raise self.failed("the connection was closed")
            self._hold(data)

    def _hold(self, data: bytes) -> None:
        self._held += self.unpacked(data)
        if data:
            self.write(credit(0, len(data)))

    def unpacked(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """The frames in what has come; raises LinkError."""
        for piece in self.unpacker.unpack(data):
            yield from self.frames.feed(piece)

    def close(self) -> None:
        """Hangs up, which ends the relay."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2.0)
            self._process.kill()
            self._process.wait()


def _started(address: Address, batch: bool) -> subprocess.Popen[bytes]:
    port = () if address.port is None else ("-p", str(address.port))
    words = _ssh()
    argv = [*words, *_OPTIONS, *(_BATCH_OPTIONS if batch else ()), *port]
    argv += ["--", address.destination, ssh_archive.command()]
    try:
        with _uninterrupted():
            return subprocess.Popen(
                argv,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=batch,
            )
    except FileNotFoundError:
        raise SshError(f"{words[0]} is not installed: apt install openssh-client", final=True) from None
    except OSError as error:
        raise SshError(f"{words[0]} could not be started: {error.strerror}", final=True) from None


def _ssh() -> list[str]:
    """The user's command; raises SshError."""
    text = os.environ.get(SSH_VARIABLE, "")
    try:
        return shlex.split(text) or ["ssh"]
    except ValueError as error:
        reason = str(error).lower()
        raise SshError(f"${SSH_VARIABLE} is no command, {reason}: {SSH_VARIABLE}={text}", final=True) from None


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C is for memtui, which still has to say goodbye: ssh does not take it where it is ignored from the start."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _whole(value: Any) -> int:
    if type(value) is not int or abs(value) >> 62:
        raise LinkError("a time that is none")
    return value
