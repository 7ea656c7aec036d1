"""The kernel's interface for holding one thread of another process (x86-64 Linux).

Whoever traces is one thread of this process: when that ends, however it ends, the kernel lets go of what it held.
PTRACE_O_EXITKILL, which would take the held process along, is never asked for.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from dataclasses import dataclass
from typing import Optional

from .errors import Gone, Unsuitable

_PEEKUSER, _POKEDATA, _CONT, _GETREGS, _SETREGS, _DETACH, _SYSCALL = 3, 5, 7, 12, 13, 17, 24
_GETREGSET, _SETREGSET, _SEIZE, _INTERRUPT, _GETSIGMASK, _SETSIGMASK = 0x4204, 0x4205, 0x4206, 0x4207, 0x420A, 0x420B
_RSEQ = 0x420F
_XSTATE = 0x202
_TRACESYSGOOD = 1
_EVENT_STOP = 128
_WALL = 0x40000000
_STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_SPIN_NS, _PAUSE_SECONDS = 2_000_000, 0.0002
#: What the kernel has for "call again" before it decides whether a signal handler was run.
RESTARTS = frozenset(2**64 - number for number in (512, 513, 514, 516))

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)

_NAMES = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
    "fs_base gs_base ds es fs gs"
)


class Registers(ctypes.Structure):
    """The general registers, as `user_regs_struct` has them."""

    _fields_ = [(name, ctypes.c_uint64) for name in _NAMES.split()]

    def value(self, name: str) -> int:
        """One register."""
        return int(getattr(self, name))

    def copy(self, **changes: int) -> Registers:
        """Another set with some of them changed."""
        other = Registers.from_buffer_copy(self)
        for name, value in changes.items():
            setattr(other, name, value & (2**64 - 1))
        return other

    @property
    def in_call(self) -> bool:
        """Whether the thread was stopped in a system call that it is to make again."""
        return self.value("orig_rax") < 1 << 63 and self.value("rax") in RESTARTS


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


@dataclass(frozen=True)
class Stop:
    """Why a held thread has stopped: "call" (at a system call), "event" (held, or its process stopped), "signal"."""

    kind: str
    signal: int = 0


def _ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    ctypes.set_errno(0)
    if _libc.ptrace(request, tid, address, data) == -1 and ctypes.get_errno():
        number = ctypes.get_errno()
        if number == errno.ESRCH:
            raise Gone(f"thread {tid} is gone, or runs on")
        raise OSError(number, os.strerror(number))


def refused() -> Optional[int]:
    """The error with which the system call itself is refused here, whatever it is called with; None where it is not."""
    ctypes.set_errno(0)
    _libc.ptrace(_PEEKUSER, 0, 0, 0)
    number = ctypes.get_errno()
    return number if number in (errno.EPERM, errno.EACCES, errno.ENOSYS) else None


class Tracee:
    """A thread of another process, held by the calling thread. Raises OSError (EPERM: not allowed) or Gone."""

    def __init__(self, tid: int) -> None:
        self.tid = tid
        _ptrace(_SEIZE, tid, 0, _TRACESYSGOOD)

    def interrupt(self, seconds: float) -> None:
        """Stops it. Signals that come in between are delivered first; Unsuitable where it does not stop in time."""
        _ptrace(_INTERRUPT, self.tid)
        end = time.monotonic_ns() + int(seconds * 1e9)
        while True:
            stop = self.wait(end)
            if stop is None:
                raise Unsuitable(f"thread {self.tid} cannot be stopped just now")
            if stop.kind == "event":
                if stop.signal in _STOPPING:
                    self.detach()
                    raise Unsuitable("the process is stopped")
                return
            self.go(stop.signal)

    def wait(self, end_ns: int) -> Optional[Stop]:
        """The next stop; None where there was none until then. Raises Gone where the thread has ended."""
        spin = time.monotonic_ns() + _SPIN_NS
        while True:
            try:
                found, status = os.waitpid(self.tid, _WALL | os.WNOHANG)
            except ChildProcessError:
                raise Gone(f"thread {self.tid} is gone") from None
            if found:
                break
            now = time.monotonic_ns()
            if now > end_ns:
                return None
            if now > spin:
                time.sleep(_PAUSE_SECONDS)
        if not os.WIFSTOPPED(status):
            raise Gone(f"thread {self.tid} has ended")
        number = os.WSTOPSIG(status)
        if status >> 16 == _EVENT_STOP:
            return Stop("event", number)
        return Stop("call") if number == signal.SIGTRAP | 0x80 else Stop("signal", number)

    def go(self, number: int = 0, *, calls: bool = False) -> None:
        """Lets it run on, with a signal; with `calls` until its next system call."""
        _ptrace(_SYSCALL if calls else _CONT, self.tid, 0, number)

    def detach(self, number: int = 0) -> None:
        """Lets go of it, with a signal."""
        _ptrace(_DETACH, self.tid, 0, number)

    def registers(self) -> Registers:
        """The general registers."""
        found = Registers()
        _ptrace(_GETREGS, self.tid, 0, ctypes.addressof(found))
        return found

    def set_registers(self, registers: Registers) -> None:
        """Sets all of them, at once."""
        _ptrace(_SETREGS, self.tid, 0, ctypes.addressof(registers))

    def extended(self) -> bytes:
        """The floating point and vector registers, as XSAVE has them."""
        buffer = ctypes.create_string_buffer(1 << 16)
        vector = _Vector(ctypes.addressof(buffer), len(buffer))
        _ptrace(_GETREGSET, self.tid, _XSTATE, ctypes.addressof(vector))
        return buffer.raw[: vector.size]

    def set_extended(self, state: bytes) -> None:
        """Sets what `extended` has read."""
        buffer = ctypes.create_string_buffer(state, len(state))
        vector = _Vector(ctypes.addressof(buffer), len(state))
        _ptrace(_SETREGSET, self.tid, _XSTATE, ctypes.addressof(vector))

    def poke(self, address: int, data: bytes) -> None:
        """Writes into its memory, a word at a time, also where it may not write itself."""
        for offset in range(0, len(data), 8):
            word = data[offset : offset + 8].ljust(8, b"\0")
            _ptrace(_POKEDATA, self.tid, address + offset, int.from_bytes(word, "little"))

    def mask(self) -> int:
        """The signals that it blocks."""
        found = ctypes.c_uint64()
        _ptrace(_GETSIGMASK, self.tid, 8, ctypes.addressof(found))
        return found.value

    def set_mask(self, mask: int) -> None:
        """Sets which signals it blocks."""
        wanted = ctypes.c_uint64(mask)
        _ptrace(_SETSIGMASK, self.tid, 8, ctypes.addressof(wanted))

    def restartable_sequence(self) -> Optional[int]:
        """Where the thread keeps its `struct rseq`; None where it has none, or the kernel does not tell."""
        buffer = (ctypes.c_uint64 * 4)()
        try:
            _ptrace(_RSEQ, self.tid, ctypes.sizeof(buffer), ctypes.addressof(buffer))
        except OSError:
            return None
        return int(buffer[0]) or None
