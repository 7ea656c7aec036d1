"""Queues a call in the target by sending one of its threads through a few instructions of memtui's (x86-64 Linux)."""

from __future__ import annotations

import errno
import os
import struct
import threading
import time
from dataclasses import dataclass
from typing import Optional

from . import stub
from .errors import Gone, InjectError, Unsuitable
from .maps import Mapping, read_maps, with_address
from .memory import Memory
from .payload import Payload
from .place import Place, find_place
from .process import threads
from .ptrace import Registers, Stop, Tracee
from .python import Python, find_python
from .stub import Parcel, Passing
from .threads import candidates, is_interrupted

_ROUNDS = 50
_ROUND_SECONDS = 0.002
_STOP_SECONDS = 0.25
_PASS_SECONDS = 5.0
_ENOSYS = 2**64 - 38
_FAULTS = frozenset((4, 5, 7, 8, 11, 31))  # SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS
_CODE_SELECTOR = 0x33  # of 64-bit code
_LOCK_BYTES = 512  # a function that holds the queue's lock has its return address this near


@dataclass(frozen=True)
class Letter:
    """A call that is queued, and where it can be followed and cancelled."""

    token: int
    token_address: int
    address: int  # of the parcel
    thread: int  # that was sent through
    paused_ns: int  # how long it was held


class Injector:
    """Puts a call into one process that sees its own pid as `inner_pid`."""

    def __init__(self, pid: int, inner_pid: int, memory: Memory, payload: Payload) -> None:
        self._pid, self._inner_pid, self._memory, self._payload = pid, inner_pid, memory, payload
        self._mappings: list[Mapping] = []
        self._python: Optional[Python] = None
        self._place: Optional[Place] = None
        self._releases: Optional[tuple[int, ...]] = None

    def inject(self) -> Letter:
        """Raises InjectError with what is in the way."""
        self._mappings = mappings = read_maps(self._pid)
        python = find_python(self._pid, self._memory, mappings)
        place = find_place(self._pid, self._memory, mappings)
        self._python, self._place = python, place
        last: InjectError = Unsuitable("none of its threads can be stopped just now")
        for _ in range(_ROUNDS):
            for tid in self._threads(place):
                try:
                    return self._on_own_thread(tid, place, python)
                except Gone as error:
                    if not os.path.exists(f"/proc/{self._pid}/mem"):
                        raise InjectError(f"process {self._pid} has ended") from error
                    self._memory.read(place.base, 8)  # raises Gone where another program runs by now
                    last = error
                except Unsuitable as error:
                    last = error
                except PermissionError:
                    raise InjectError(f"the system does not let this process trace {self._pid}") from None
                except OSError as error:
                    if error.errno == errno.EPERM:
                        raise InjectError(f"the system does not let this process trace {self._pid}") from None
                    raise InjectError(f"thread {tid} could not be held: {error.strerror or error}") from error
            time.sleep(_ROUND_SECONDS)
        raise InjectError(str(last))

    @property
    def may_need_nudge(self) -> bool:
        """Whether a call that was queued through another thread may stay unseen.

        Before Python 3.13 the main thread looks at its queue when it takes the interpreter's lock again, or when it
        has queued a call itself; a lone thread that runs nothing but Python never gives that lock away.
        """
        python = self._python
        return python is not None and python.evaluation is not None and (python.version or (3, 0)) < (3, 13)

    def nudge(self) -> int:
        """Has the main thread queue a call that does nothing; returns for how many nanoseconds it was held.

        Raises Unsuitable where it is not in the evaluation loop just now, and InjectError.
        """
        python, place = self._python, self._place
        if python is None or place is None or python.evaluation is None:
            raise Unsuitable("nothing is queued")
        if self._releases is None:
            self._releases = python.evaluation.releases(self._memory)
        return self._on_own_thread(self._pid, place, python, nudge=True).paused_ns

    def _threads(self, place: Place) -> list[int]:
        found = candidates(self._pid)
        # Where a killed tool has sent a thread through, that one is looked at first, and no other may follow.
        if place.left_by in threads(self._pid):
            return [place.left_by] if place.left_by in found else []
        return found

    def _on_own_thread(self, tid: int, place: Place, python: Python, *, nudge: bool = False) -> Letter:
        """Whatever goes wrong, the thread that traces ends, and with it the kernel lets go of everything."""
        answer: list[Letter] = []
        failure: list[BaseException] = []

        def work() -> None:
            try:
                answer.append(self._hold(tid, place, python, nudge=nudge))
            except BaseException as error:  # noqa: BLE001 - raised again by whoever waits for this thread
                failure.append(error)

        tracer = threading.Thread(target=work, name="memtui-tracer", daemon=True)
        tracer.start()
        tracer.join()
        if failure:
            raise failure[0]
        return answer[0]

    def _hold(self, tid: int, place: Place, python: Python, *, nudge: bool) -> Letter:
        tracee = Tracee(tid)
        begun = time.perf_counter_ns()
        try:
            tracee.interrupt(_STOP_SECONDS)
            registers = tracee.registers()
            extended = tracee.extended()
            self._check(tracee, registers, place, python, len(extended))
            if nudge:
                self._check_open(registers, python)
        except Unsuitable:
            _let_go(tracee)
            raise
        token = int.from_bytes(os.urandom(8), "little") or 1
        if nudge:
            token = self._memory.word(place.token_address)  # as it is: the call before may still run
        passing = Passing(
            place.passing,
            tid,
            registers,
            extended_bytes=len(extended),
            size=0 if nudge else self._payload.parcel_bytes,
            add=python.add,
            initialized=python.initialized,
        )
        self._put(tracee, place.base, struct.pack("<Q", token) + stub.RESIDENT_CODE)
        self._put(tracee, place.passing, passing.machine_code)
        parcel = Parcel(token, self._inner_pid, python.new_dictionary, python.run, python.release)
        # From here on the thread finds its way back alone.
        tracee.set_registers(passing.redirected(registers))
        tracee.go(calls=True)
        address = 0
        end = time.monotonic_ns() + int(_PASS_SECONDS * 1e9)
        while True:
            stop = tracee.wait(end)
            if stop is None:
                raise self._lost(place, nudge=nudge)
            now = tracee.registers()
            where = now.value("rip")
            if stop.kind == "call" and now.value("rax") != _ENOSYS:
                if where == passing.mapped and not nudge:
                    address = now.value("rax")
                    if address < 2**64 - 4096:
                        self._fill(address, parcel)
                elif where == passing.done:
                    result = self._memory.word(passing.result_address)
                    self._put_back(tracee, registers, place)
                    paused = time.perf_counter_ns() - begun
                    return self._letter(result, place, token, address, tid, paused)
            elif stop.kind == "signal":
                if where == passing.start:
                    # It arrived before the first instruction: the call that the thread was in ends with it.
                    self._put_back(tracee, registers, place, stop.signal)
                    raise Unsuitable("signals keep interrupting its threads")
                if stop.signal in _FAULTS:
                    self._undo(tracee, registers, extended, passing, place)
                    raise InjectError(f"the call into its Python failed with signal {stop.signal}; it was undone")
            tracee.go(_passed_on(stop), calls=True)

    def _lost(self, place: Place, *, nudge: bool) -> InjectError:
        if not nudge:  # the call that is queued already stays so
            self._memory.write(place.token_address, bytes(8))
        return InjectError("its thread is taking long; nothing is held, and it goes back to its work alone")

    def _check_open(self, registers: Registers, python: Python) -> None:
        """Raises Unsuitable where the main thread may have the queue's lock, or is not in Python."""
        evaluation = python.evaluation
        where = registers.value("rip")
        if evaluation is None or registers.in_call or not evaluation.is_in_the_open(where, self._releases or ()):
            raise Unsuitable("its main thread is not in plain Python code just now")

    def _fill(self, address: int, parcel: Parcel) -> None:
        self._memory.write(address, parcel.header())
        self._memory.write(address + Parcel.TEXT_OFFSET, self._payload.contents(address))
        self._memory.write(address + Parcel.STATE_OFFSET, struct.pack("<Q", stub.QUEUED))

    def _letter(self, result: int, place: Place, token: int, address: int, tid: int, paused: int) -> Letter:
        if result == 0:
            return Letter(token, place.token_address, address, tid, paused)
        if address >= 2**64 - 4096:
            raise InjectError(f"process {self._pid} has no memory left for an agent")
        raise InjectError("its Python has not started yet or is ending, or its queue of calls is full")

    def _check(self, tracee: Tracee, registers: Registers, place: Place, python: Python, extended_bytes: int) -> None:
        """Raises Unsuitable where a thread stands at a point from which it had better not be sent away."""
        if registers.value("cs") != _CODE_SELECTOR:
            raise Unsuitable("it runs 32-bit code")
        if is_interrupted(self._pid, tracee.tid):
            raise Unsuitable("signals keep interrupting its threads")
        pointer, where = registers.value("rsp"), registers.value("rip")
        stack = with_address(self._mappings, pointer) or with_address(read_maps(self._pid), pointer)
        # The main thread's stack grows by itself.
        room = 0 if stack is None else pointer - stack.start
        if room < stub.stack_bytes(extended_bytes) and tracee.tid != self._pid:
            raise Unsuitable("its thread has too little stack left")
        if place.left_by and (place.base <= where < place.end or self._on_stack(pointer, place.base, place.end)):
            raise Unsuitable("its thread is on its way back from an earlier attempt")
        if not registers.in_call:
            # In the middle of the very function that is to be called, which holds a lock.
            if python.add <= where < python.add + 512 or self._on_stack(pointer, python.add, python.add + 512):
                raise Unsuitable("its thread is just queueing a call itself")
            sequence = tracee.restartable_sequence()
            if sequence is not None and self._memory.word(sequence + 8):
                raise Unsuitable("its thread is in a restartable sequence")

    def _on_stack(self, pointer: int, start: int, end: int) -> bool:
        """Whether the nearest part of a stack has an address of this range."""
        try:
            words = struct.iter_unpack("<Q", self._memory.read(pointer, _LOCK_BYTES))
        except OSError:
            return False
        return any(start <= word < end for (word,) in words)

    def _undo(self, tracee: Tracee, registers: Registers, extended: bytes, passing: Passing, place: Place) -> None:
        if tracee.mask() & stub.BLOCKED_KEPT == stub.BLOCKED_KEPT:
            tracee.set_mask(self._memory.word(passing.locals))
        tracee.set_extended(extended)
        self._put_back(tracee, registers, place)

    def _put_back(self, tracee: Tracee, registers: Registers, place: Place, number: int = 0) -> None:
        """The thread first, and then the code that it has gone through: it never stands where there is none."""
        tracee.set_registers(registers)
        self._put(tracee, place.passing, place.cleared)
        tracee.detach(number)

    def _put(self, tracee: Tracee, address: int, code: bytes) -> None:
        try:
            self._memory.write(address, code)
        except OSError:
            # The kernel may be told to let a tracer write what the process itself may not, and nobody else.
            tracee.poke(address, code)


def _let_go(tracee: Tracee) -> None:
    try:
        tracee.detach()
    except Gone:
        return  # it runs: this thread's end lets go of it


def _passed_on(stop: Stop) -> int:
    """The signal that a stop is to go on with: a stop of the process by job control is taken up when it is let go."""
    return stop.signal if stop.kind == "signal" else 0
