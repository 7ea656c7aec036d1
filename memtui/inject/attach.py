"""Attaching: every way in is tried in its order, and each says what it has done."""

from __future__ import annotations

import math
import os
import pathlib
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Optional

from memtui.wire import codec
from memtui.wire.frames import Request

from . import stub
from .debugger import inject_with_gdb
from .errors import Gone, InjectError, NotLoaded, Unsuitable
from .injector import Injector, Letter
from .memory import Memory
from .payload import Payload
from .preflight import GDB, PTRACE, REMOTE, Preflight, Refusal, check
from .process import Facts, read_facts
from .reach import find_socket_of, inner_uid, is_socket_of, reached
from .remote import Script
from .stub import Parcel
from .threads import Inside, is_running, main_inside
from .turn import turn
from .words import printable

#: A call that waits for the main thread is taken back when the user no longer waits, not before.
PATIENCE_SECONDS = 10 * 365 * 86_400.0
_POLL_SECONDS = 0.002
_SLOW_POLL_SECONDS = 0.05
#: After so long it is told what the main thread is busy with, and again after each further.
_TOLD_SECONDS = 0.5
_CANCEL_SECONDS = 0.1
#: After so long a call that still waits is looked into, and then again, each time that much later.
_NUDGE_SECONDS = 0.008
_NUDGE_GROWTH = 1.5
#: Each time as often as this: half of plain Python's time is spent in functions that the loop calls.
_NUDGE_TRIES, _NUDGE_PAUSE_SECONDS = 5, 0.0003
_ENDED = (None, "Z", "X")


@dataclass(frozen=True)
class Progress:
    """Something that has happened. `stage` is "trying", "failed", "queued", "nudged", "waiting" or "started"."""

    stage: str
    way: str
    text: str  # one line for the user
    thread: Optional[int] = None  # that was sent through
    main_thread: bool = False  # whether that is the program's main one
    paused_ns: Optional[int] = None  # how long it was held
    inside: Optional[Inside] = None  # what the main thread is busy with, while a call waits for it


@dataclass(frozen=True)
class Outcome:
    """How it ended.

    `status` is "attached" (`socket` is where the agent listens), "refused" (nothing was done), "failed", "cancelled",
    or "queued" (the time is over, and the agent starts once the main thread returns to Python).
    """

    status: str
    pid: int
    text: str  # one line for the user
    way: Optional[str] = None
    socket: Optional[pathlib.Path] = None
    already: bool = False  # its agent ran before
    thread: Optional[int] = None
    paused_ns: Optional[int] = None
    waited_ns: Optional[int] = None  # from the call being queued until the agent listened
    refusals: tuple[Refusal, ...] = ()
    progress: tuple[Progress, ...] = ()


@dataclass
class _Course:
    """What has happened so far."""

    pid: int
    told: Callable[[Progress], None]
    ends_ns: int
    cancel: threading.Event
    cancel_at_end: bool
    steps: list[Progress] = field(default_factory=list)

    def tell(self, progress: Progress) -> None:
        self.steps.append(progress)
        self.told(progress)

    @property
    def over(self) -> bool:
        return self.cancel.is_set() or time.monotonic_ns() > self.ends_ns


def attach(
    pid: int,
    *,
    timeout: float = 30.0,
    progress: Callable[[Progress], None] = lambda progress: None,
    cancel: Optional[threading.Event] = None,
    ways: Optional[tuple[str, ...]] = None,
    keep_queued: bool = False,
) -> Outcome:
    """Gets memtui's agent into process `pid`; returns once it listens. Blocks: call it from a worker thread.

    `progress` is called in the calling thread. When `cancel` is set or `timeout` seconds are over, a call that is
    queued and has not run yet is cancelled; with `keep_queued` one whose time is over is left to run later.
    Where the process is a child of this one, nobody here may wait for it meanwhile: he would get the tracer's news.
    """
    facts = read_facts(pid)
    found = None if facts is None else find_socket_of(facts)
    if found is not None and _answers(found):
        return Outcome("attached", pid, f"the agent of process {pid} runs already", socket=found, already=True)
    preflight = check(pid)
    if preflight.refusal is not None or preflight.facts is None:
        refusal = preflight.refusals[0]
        return Outcome("refused", pid, refusal.text, refusals=preflight.refusals)
    ends = time.monotonic_ns() + int(timeout * 1e9)
    course = _Course(pid, progress, ends, cancel or threading.Event(), not keep_queued)
    try:
        with turn(pid, lambda: course.over):
            found = find_socket_of(preflight.facts)
            if found is not None and _answers(found):  # another tool was faster
                return Outcome("attached", pid, f"the agent of process {pid} runs already", socket=found, already=True)
            return _try_all(preflight, preflight.facts, course, ways)
    except (InjectError, OSError) as error:
        ended = not isinstance(error, InjectError) and _process_state(pid) in _ENDED
        text = f"process {pid} has ended" if ended else str(error)
        status = "cancelled" if course.cancel.is_set() else "failed"
        return Outcome(status, pid, text, refusals=preflight.refusals, progress=tuple(course.steps))


def _try_all(preflight: Preflight, facts: Facts, course: _Course, ways: Optional[tuple[str, ...]]) -> Outcome:
    tries = {PTRACE: _by_ptrace, REMOTE: _by_remote_exec, GDB: _by_gdb}
    payload = Payload(facts.inner_pid, _peers(facts))
    failures = []
    for way in preflight.ways:
        if ways is not None and way not in ways:
            continue
        if course.over:
            break
        course.tell(Progress("trying", way, f"{way}: trying"))
        try:
            return tries[way](facts, payload, course)
        except (InjectError, OSError) as error:
            failures.append(f"{way}: {error}")
            course.tell(Progress("failed", way, failures[-1]))
            if isinstance(error, NotLoaded) or _process_state(facts.pid) in _ENDED:
                break
    status = "cancelled" if course.cancel.is_set() else "failed"
    text = "; ".join(failures) or "no way in was tried"
    return Outcome(status, facts.pid, text, refusals=preflight.refusals, progress=tuple(course.steps))


def _peers(facts: Facts) -> list[int]:
    """This user, where the target's agent would not know it for its own or for root."""
    return [inner_uid(facts, os.geteuid())] if facts.nested_user else []


def _by_ptrace(facts: Facts, payload: Payload, course: _Course) -> Outcome:
    with Memory(facts.pid) as memory:
        injector = Injector(facts.pid, facts.inner_pid, memory, payload)
        letter = injector.inject()
        held = f"{letter.paused_ns / 1e6:.1f} ms"
        main = letter.thread == facts.pid
        text = f"queued through {'the main thread' if main else f'thread {letter.thread}'}, which was held for {held}"
        course.tell(Progress("queued", PTRACE, text, letter.thread, main, letter.paused_ns))
        queued = time.monotonic_ns()

        nudges = _Nudges(course, injector, memory, letter)

        def look() -> Optional[pathlib.Path]:
            found = _read(facts, memory, letter)
            if found is None:
                nudges.maybe()
            return found

        found = _wait(course, facts, PTRACE, look, memory, letter)
        if found is None:
            begun = False
            if course.cancel.is_set() or course.cancel_at_end:
                _call_off(memory, letter)
                time.sleep(_CANCEL_SECONDS)
                begun = _state(memory, letter) != stub.QUEUED
                if begun:
                    found = _wait(course, facts, PTRACE, look, memory, letter, even_if_over=True)
            if found is None:
                return _not_yet(course, PTRACE, letter, begun=begun)
        return _attached(course, PTRACE, found, queued, letter)


class _Nudges:
    """The main thread is asked to look at its queue where it may never do so by itself; more and more rarely."""

    def __init__(self, course: _Course, injector: Injector, memory: Memory, letter: Letter) -> None:
        self._course, self._injector, self._memory, self._letter = course, injector, memory, letter
        self._wait = _NUDGE_SECONDS if injector.may_need_nudge and letter.thread != course.pid else math.inf
        self._next = time.monotonic() + self._wait

    def maybe(self) -> None:
        """Does so where it is time and the call still waits."""
        if time.monotonic() < self._next:
            return
        if not is_running(self._course.pid) or _state(self._memory, self._letter) != stub.QUEUED:
            self._next = time.monotonic() + self._wait
            return
        for _ in range(_NUDGE_TRIES):
            try:
                held = self._injector.nudge()
                self._wait = math.inf
                text = f"its main thread looks at its queue; it was held for {held / 1e6:.1f} ms"
                self._course.tell(Progress("nudged", PTRACE, text, self._course.pid, True, held))
                break
            except Unsuitable:
                time.sleep(_NUDGE_PAUSE_SECONDS)
            except (InjectError, OSError):
                self._wait = math.inf
                break
        else:
            self._wait *= _NUDGE_GROWTH
        self._next = time.monotonic() + self._wait


def _call_off(memory: Memory, letter: Letter) -> None:
    """Its function compares the token, and does nothing where it is another one."""
    try:
        memory.write(letter.token_address, bytes(8))
    except OSError as error:
        raise InjectError("queued, and the kernel does not let it be called off: the agent will start") from error


def _by_remote_exec(facts: Facts, payload: Payload, course: _Course) -> Outcome:
    script = Script(facts, payload.whole_text())
    keep = False
    try:
        course.tell(Progress("queued", REMOTE, "queued by the program's own interpreter"))
        queued = time.monotonic_ns()
        found = _wait(course, facts, REMOTE, lambda: find_socket_of(facts), None)
        if found is not None:
            return _attached(course, REMOTE, found, queued, None)
        keep = True
        if course.cancel.is_set() or course.cancel_at_end:
            script.cancel()
        return _not_yet(course, REMOTE, None)
    finally:
        if not keep:
            script.remove()


def _by_gdb(facts: Facts, payload: Payload, course: _Course) -> Outcome:
    inject_with_gdb(facts.pid, shutil.which("gdb") or "gdb", payload.whole_text())
    course.tell(Progress("queued", GDB, "queued by gdb"))
    queued = time.monotonic_ns()
    found = _wait(course, facts, GDB, lambda: find_socket_of(facts), None)
    return _not_yet(course, GDB, None) if found is None else _attached(course, GDB, found, queued, None)


def _wait(
    course: _Course,
    facts: Facts,
    way: str,
    look: Callable[[], Optional[pathlib.Path]],
    memory: Optional[Memory],
    letter: Optional[Letter] = None,
    *,
    even_if_over: bool = False,
) -> Optional[pathlib.Path]:
    """Where the agent listens; None where it does not when the time is over."""
    begun = time.monotonic()
    told = begun
    while True:
        found = look()
        if found is not None:
            return found
        now = time.monotonic()
        if course.over and not (even_if_over and now - begun < 10):
            return None
        current = _process_state(facts.pid)
        if current in _ENDED:
            raise InjectError(f"process {facts.pid} has ended")
        if now - told > _TOLD_SECONDS:
            told = now
            _tell_waiting(course, facts, way, memory, letter)
        time.sleep(_POLL_SECONDS if now - begun < 1 else _SLOW_POLL_SECONDS)


def _tell_waiting(course: _Course, facts: Facts, way: str, memory: Optional[Memory], letter: Optional[Letter]) -> None:
    if memory is None or letter is None:
        course.tell(Progress("waiting", way, "queued until the main thread returns to Python"))
        return
    if _state(memory, letter) != stub.QUEUED:
        course.tell(Progress("waiting", way, "the agent is being loaded: its call has run"))
        return
    inside = main_inside(facts.pid, memory, list(facts.mappings))
    text = f"queued until the main thread returns to Python; it is {inside.text}"
    course.tell(Progress("waiting", way, text, inside=inside))


def _process_state(pid: int) -> Optional[str]:
    """The process's state; None where it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return None


def _state(memory: Memory, letter: Letter) -> Optional[int]:
    """How far the parcel is; None where it has been given back."""
    try:
        header = memory.read(letter.address, Parcel.MESSAGE_OFFSET)
    except (OSError, Gone):
        return None
    token, state = struct.unpack_from("<Q", header)[0], struct.unpack_from("<Q", header, Parcel.STATE_OFFSET)[0]
    return int(state) if token == letter.token else None


def _read(facts: Facts, memory: Memory, letter: Letter) -> Optional[pathlib.Path]:
    """Where the agent listens, by its own word; raises InjectError where it says that it does not."""
    state = _state(memory, letter)
    if state is None:
        return find_socket_of(facts)
    if state not in {stub.FAILED, stub.SERVING}:
        return None
    size = min(memory.word(letter.address + Parcel.MESSAGE_OFFSET), 900)
    text = memory.read(letter.address + Parcel.MESSAGE_OFFSET + 8, size).decode(errors="replace")
    if state == stub.FAILED:
        raise NotLoaded(printable(text))
    path = reached(facts, pathlib.Path(text)) if text.startswith("/") else None
    return path if path is not None and is_socket_of(facts, path) else find_socket_of(facts)


def _attached(course: _Course, way: str, found: pathlib.Path, queued_ns: int, letter: Optional[Letter]) -> Outcome:
    waited = time.monotonic_ns() - queued_ns
    course.tell(Progress("started", way, f"the agent runs, {waited / 1e6:.0f} ms after its call was queued"))
    thread, paused = (letter.thread, letter.paused_ns) if letter is not None else (None, None)
    return Outcome(
        "attached",
        course.pid,
        f"the agent runs in process {course.pid}",
        way,
        found,
        thread=thread,
        paused_ns=paused,
        waited_ns=waited,
        progress=tuple(course.steps),
    )


def _not_yet(course: _Course, way: str, letter: Optional[Letter], *, begun: bool = False) -> Outcome:
    # Nothing takes back what gdb has queued, nor a call that has begun.
    cancelled = way != GDB and not begun and (course.cancel.is_set() or course.cancel_at_end)
    inside = next((step.inside for step in reversed(course.steps) if step.inside is not None), None)
    busy = f"the main thread has not returned to Python{'' if inside is None else f': it is {inside.text}'}"
    status = "cancelled" if cancelled else "queued"
    if begun:
        busy = "its call has run"
    text = f"{busy}; nothing was started" if cancelled else f"{busy}; the agent starts by itself"
    thread, paused = (letter.thread, letter.paused_ns) if letter is not None else (None, None)
    return Outcome(status, course.pid, text, way, thread=thread, paused_ns=paused, progress=tuple(course.steps))


def _answers(path: pathlib.Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(os.fspath(path))
            connection.sendall(codec.encode(Request("hello", history=False)))
            return bool(connection.recv(1))
        except (TimeoutError, socket.timeout):  # two classes before Python 3.10
            return True  # in a long call that holds Python, or stopped
        except OSError:
            return False
