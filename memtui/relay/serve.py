"""The loop at the far end: reads no faster than it can write, and goes when the viewer does."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import queue
import select
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Optional

from memtui.sources import finding
from memtui.sources.virtual_driver import use_driver_of_process
from memtui.wire import codec
from memtui.wire.relaying import (
    CLOSE,
    CREDIT,
    DATA,
    GREETING,
    PIECE_BYTES,
    TOLD,
    VERSION,
    Frames,
    LinkError,
    Packer,
    credit,
    frame,
    read_credit,
    read_told,
    told,
)

from .channel import Channel, ChannelError
from .driver import DriverThread
from .entries import Entries
from .process import ProcessReader
from .window import Window

_LOOK_SECONDS, _SEARCH_EVERY = 1.0, 2
#: A viewer says something every few seconds.
_SILENT_SECONDS = 60.0
_MOST_CHANNELS = 4096


class Relay:
    """Serves one viewer."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._frames, self._packer = Frames(), Packer()
        self._out = bytearray()  # packed
        self._told: deque[bytes] = deque()
        self._window = Window()
        self._channels: dict[int, Channel] = {}
        self._closing: dict[int, bytes] = {}  # by channel: why, once all of it is given out
        self._processes: dict[int, ProcessReader] = {}
        self._roots: list[Optional[int]] = []
        self._search = False
        self._looks = 0
        self._found = ""
        self._queue: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._wake_out, self._wake_in = os.pipe()
        self._entries = Entries(self._from_thread)
        self._driver = DriverThread(self._from_thread, lambda: list(self._processes))
        self._driving = self._stopped = False
        for each in (source, sink, self._wake_out, self._wake_in):
            os.set_blocking(each, False)

    def _from_thread(self, fields: dict[str, Any]) -> None:
        self._queue.put(fields)
        with contextlib.suppress(OSError):  # full of other reasons to wake, or closed
            os.write(self._wake_in, b"x")

    def stop(self, *_: Any) -> None:
        """Ends the loop."""
        self._stopped = True

    def run(self) -> None:
        """Serves until the viewer has gone."""
        heard = looked = time.monotonic()
        while not self._stopped:
            self._fill()
            poll = select.poll()
            poll.register(self._source, select.POLLIN)
            poll.register(self._wake_out, select.POLLIN)
            if self._out:
                poll.register(self._sink, select.POLLOUT)
            for number, channel in self._channels.items():
                if number in self._closing:
                    continue
                wanted = (0 if channel.stream.full else select.POLLIN) | (select.POLLOUT if channel.asks else 0)
                if wanted:
                    poll.register(channel.socket, wanted)
            ready = {number for number, _ in poll.poll(max(0.0, looked + _LOOK_SECONDS - time.monotonic()) * 1000)}
            if self._source in ready:
                if not self._read():
                    break
                heard = time.monotonic()
            self._take_queue(ready)
            for number, channel in list(self._channels.items()):
                if number not in self._closing and channel.socket.fileno() in ready:
                    self._serve(number, channel)
            self._write()
            if time.monotonic() - looked >= _LOOK_SECONDS:
                looked = time.monotonic()
                self._look()
            if looked - heard > _SILENT_SECONDS:
                break

    def close(self) -> None:
        """Takes back what is under way."""
        for channel in self._channels.values():
            channel.close()
        self._driver.stop()
        self._entries.close()

    # Out

    def _tell(self, **fields: Any) -> None:
        self._told.append(told(**fields))

    def _fill(self) -> None:
        """Packs what may be sent: what is told first, then pieces of every channel in turn."""
        while len(self._out) < PIECE_BYTES and self._window.room > len(self._out):
            batch = bytearray()
            while self._told and len(batch) < PIECE_BYTES:
                batch += self._told.popleft()
            for number, channel in list(self._channels.items()):
                if channel.ready:
                    batch += frame(DATA, number, channel.piece(PIECE_BYTES))
                elif number in self._closing and channel.stream.empty:
                    batch += self._end(number)
            if not batch:
                return
            self._out += self._packer.pack(bytes(batch))

    def _end(self, number: int) -> bytes:
        self._channels.pop(number).close()
        return frame(CLOSE, number, self._closing.pop(number))

    def _write(self) -> None:
        try:
            while self._out:
                sent = os.write(self._sink, self._out[: 1 << 16])
                self._window.send(sent)
                del self._out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._stopped = True

    # In

    def _read(self) -> bool:
        try:
            data = os.read(self._source, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        for kind, number, payload in self._frames.feed(data):
            self._take(kind, number, payload)
        return bool(data)

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == TOLD:
            self._answer(read_told(payload))
        elif kind == CREDIT and number == 0:
            self._window.take(read_credit(payload))
        elif number in self._channels:
            channel = self._channels[number]
            if kind == CREDIT:
                channel.credit += read_credit(payload)
            elif kind == CLOSE:
                self._closing.pop(number, None)
                self._channels.pop(number).close()
            else:
                self._told.append(credit(number, len(payload)))
                try:
                    channel.ask(payload)
                except ChannelError as error:
                    self._hang_up(number, channel, str(error))

    def _answer(self, asked: dict[str, Any]) -> None:
        do, pid, number = asked.get("do"), int(asked.get("pid", 0)), int(asked.get("number", 0))
        if do == "ping":
            self._tell(**{"is": "pong", "number": number, "time_ns": time.monotonic_ns()})
        elif do == "find":
            self._roots, self._search = list(asked["roots"]), bool(asked.get("search"))
            self._found, self._looks = "", 0
            self._look()
        elif do == "trainings":
            self._tell(**{"is": "answer", "number": number, "found": finding.trainings()})
        elif do == "watch":
            self._processes[pid] = ProcessReader(pid, asked.get("started"))
            self._tell_process(pid)
            if not self._driving:
                self._driving = True
                use_driver_of_process(pid)
                self._driver.start()
        elif do == "open":
            self._open(number, pid)
        elif do in ("enter", "cancel"):
            (self._entries.enter if do == "enter" else self._entries.cancel)(pid)
        elif do in ("unload", "check"):
            (self._entries.unload if do == "unload" else self._entries.check)(number, pid)

    def _open(self, number: int, pid: int) -> None:
        if number in self._channels or len(self._channels) >= _MOST_CHANNELS:
            raise LinkError("a channel that is there already")
        try:
            self._channels[number] = Channel(pid)
        except ChannelError as error:
            self._told.append(frame(CLOSE, number, str(error).encode()))

    # What is looked at

    def _serve(self, number: int, channel: Channel) -> None:
        try:
            channel.write()
            if not channel.stream.full and not channel.read():
                self._hang_up(number, channel, "")
        except codec.CodecError as error:
            self._hang_up(number, channel, f"the agent sent something that is no frame ({error}); connecting again")
        except ChannelError as error:
            self._hang_up(number, channel, str(error))

    def _hang_up(self, number: int, channel: Channel, reason: str) -> None:
        """What it has sent is given out first; but that the process has ended is told before."""
        if number in self._closing:
            return
        if channel.pid in self._processes:
            self._tell_process(channel.pid)
        self._closing[number] = reason.encode()[:2000]
        channel.socket.close()

    def _take_queue(self, ready: set[int]) -> None:
        if self._wake_out in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_out, 4096)
        while not self._queue.empty():
            fields = self._queue.get()
            # Of readings that the link does not carry the next one says as much.
            if fields["is"] != "driver" or not self._behind:
                self._tell(**fields)

    @property
    def _behind(self) -> bool:
        return len(self._told) > 64 or (bool(self._told) and bool(self._out))

    def _look(self) -> None:
        for pid in list(self._processes):
            if not self._behind or self._looks % 8 == 0:
                self._tell_process(pid)
        search = self._search and self._looks % _SEARCH_EVERY == 0
        if self._roots and self._looks % _SEARCH_EVERY == 0:
            found = [self._found_of(root, search) for root in self._roots]
            if str(found) != self._found:
                self._found = str(found)
                self._tell(**{"is": "found", "found": found})
        self._looks += 1

    def _found_of(self, root: Optional[int], search: bool) -> list[finding.Found]:
        if root is None:
            return finding.found_here()
        return finding.found_below(root, search=search, on_devices=self._driver.on_devices)

    def _tell_process(self, pid: int) -> None:
        reading = self._processes[pid].read()
        fields = {name: value for name, value in reading.__dict__.items() if value not in (None, "", ())}
        self._tell(**{"is": "process", "pid": pid, "reading": fields, "agent": finding.has_agent(pid)})


def serve(source: int, greeting: str) -> None:
    """Greets on standard output with `greeting`, which the viewer has chosen, and serves it."""
    sink = os.dup(1)
    os.dup2(2, 1)  # whatever prints there is no part of the link
    relay = Relay(source, sink)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, relay.stop)
    _whole(sink, GREETING + greeting.encode() + b"\n")
    relay._tell(**{"is": "ready", "version": VERSION, **_facts()})
    try:
        relay.run()
    except (LinkError, KeyError, TypeError, ValueError) as error:
        os.write(2, f"memtui relay: {type(error).__name__}: {error}\n".encode())
    finally:
        relay.close()


def _facts() -> dict[str, Any]:
    boot = space = ""
    with contextlib.suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return {
        "python": platform.python_version(),
        "user": _or_number(getpass.getuser),
        "uid": os.geteuid(),
        "hostname": platform.node(),
        "machine": platform.machine(),
        "boot": boot,
        "space": space,
        "time_ns": time.monotonic_ns(),
    }


def _or_number(name: Callable[[], str]) -> str:
    try:
        return name()
    except (KeyError, OSError, ImportError):
        return str(os.geteuid())


def _whole(sink: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(sink, data) :]
        except BlockingIOError:
            select.select([], [sink], [])
