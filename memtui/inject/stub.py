"""What runs in the target: machine code in the unused end of a page of code that is mapped there already.

Two pieces. The resident one is the pending call: Python calls it on its main thread, with the address of a `Parcel`.
The passing one is what a thread is sent through: it blocks signals, saves the vector registers, maps memory for the
parcel, queues the call, puts everything back and goes on where the thread was. It is complete before the thread is
sent, and needs nobody: should the tool be killed at any instant, the thread finds its way back alone.
"""

from __future__ import annotations

import signal
import struct
from dataclasses import dataclass

from .code import REGISTERS, Code
from .ptrace import Registers

_MMAP, _MUNMAP, _SIGMASK, _SIGPENDING, _GETPID, _RESTART = 9, 11, 14, 127, 39, 219
_BLOCK, _SETMASK = 0, 2
_FILE_INPUT = 257
_EINTR = 4
_RESTART_BLOCK = 2**64 - 516
#: Faults, which cannot wait.
_UNBLOCKED = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS)
BLOCKED = (2**64 - 1) & ~sum(1 << (number - 1) for number in _UNBLOCKED)
#: Of these, what the kernel lets be blocked.
BLOCKED_KEPT = BLOCKED & ~sum(1 << (number - 1) for number in (signal.SIGKILL, signal.SIGSTOP))
#: Below the stack pointer, what a function may use without saying so.
_RED_ZONE = 128
#: Between the program's stack and what is saved on it: the flags are put there on the way back.
_MARGIN = 64
#: What a call into Python may use of the stack.
CALL_BYTES = 32 << 10


def _resident(base: int) -> Code:
    code = Code(base)
    code.field("token", 0)
    code.raw("53 4154 4155")  # push rbx, r12, r13: the stack is aligned then
    code.raw("4889fb")  # mov rbx, rdi
    code.load("rax", "token")
    code.raw("483b03")  # cmp rax, [rbx]
    code.to("0f85", "none")  # cancelled, or another call was queued since
    code.system(_GETPID)
    code.raw("3b4308")  # cmp eax, [rbx+8]
    code.to("0f85", "none")  # a child that was forked with its parent's queue
    code.raw("48c7432802000000")  # mov qword [rbx+40], RUNNING: from here on it cannot be called off
    code.raw("4c8b6320")  # mov r12, [rbx+32]: Py_DecRef
    code.raw("ff5310")  # call [rbx+16]: PyDict_New
    code.raw("4885c0")  # test rax, rax
    code.to("0f84", "fail")
    code.raw("4989c5")  # mov r13, rax
    code.raw("488dbb00040000")  # lea rdi, [rbx+1024]: the text
    code.number("rsi", _FILE_INPUT)
    code.raw("4c89ea 4c89e9 4531c0")  # mov rdx, r13; mov rcx, r13; xor r8d, r8d
    code.raw("ff5318")  # call [rbx+24]: PyRun_StringFlags
    code.raw("4889c3 4885db")  # mov rbx, rax; test rbx, rbx
    code.to("0f84", "fail")
    code.raw("4c89ef 41ffd4")  # mov rdi, r13; call r12
    code.raw("4889df 41ffd4")  # mov rdi, rbx; call r12
    code.label("none")
    code.raw("31c0 415d 415c 5b c3")  # xor eax, eax; pop r13, r12, rbx; ret
    code.label("fail")
    # An exception is set: a signal handler of the program has raised it while the text ran. It goes on its way.
    code.number("rax", -1)
    code.raw("415d 415c 5b c3")
    return code


RESIDENT = _resident(0).made()
#: Its code, which tells whose page end it is; before it stands the token of the call that may run.
RESIDENT_CODE = RESIDENT[8:]
#: The passing piece begins here, with the id of the thread that is sent through it.
PASSING_OFFSET = (len(RESIDENT) + 15) // 16 * 16


@dataclass(frozen=True)
class Parcel:
    """What is put into the memory that the passing piece maps. The text is at 1024, the archive behind it."""

    token: int
    inner_pid: int
    new_dictionary: int  # PyDict_New, PyRun_StringFlags, Py_DecRef
    run: int
    release: int

    STATE_OFFSET = 40
    MESSAGE_OFFSET = 48
    TEXT_OFFSET = 1024

    def header(self) -> bytes:
        """Without the state, which is written last: until then the passing piece takes it for empty."""
        return struct.pack("<5Q", self.token, self.inner_pid, self.new_dictionary, self.run, self.release)


#: States of a parcel. It is the target's own from RUNNING on, and may be unmapped at any time after SERVING.
EMPTY, QUEUED, RUNNING, FAILED, SERVING = range(5)


class Passing:
    """The passing piece for one thread as it was stopped."""

    def __init__(
        self, base: int, tid: int, registers: Registers, *, extended_bytes: int, size: int, add: int, initialized: int
    ) -> None:
        """`size` bytes are mapped; `add` and `initialized` are Py_AddPendingCall and Py_IsInitialized.

        With 0 bytes the call that is queued finds no parcel, and does nothing.
        """
        top = (registers.value("rsp") - _RED_ZONE - _MARGIN) & ~63
        area = (top - extended_bytes) & ~63
        #: The old mask, the pending signals and the result are here, and the stack below.
        self.locals = area - 64
        self._code = self._made(base, tid, registers, area, size, add, initialized)
        self.start, self.mapped, self.done = map(self._code.address, ("start", "mapped", "done"))
        self.machine_code = self._code.made()

    @property
    def result_address(self) -> int:
        """What Py_AddPendingCall has said: 0 where the call is queued."""
        return self.locals + 16

    def redirected(self, registers: Registers) -> Registers:
        """The registers that send the thread through."""
        # No system call is to be made again in between.
        return registers.copy(rip=self.start, orig_rax=-1)

    def _made(
        self, base: int, tid: int, registers: Registers, area: int, size: int, add: int, initialized: int
    ) -> Code:
        code = Code(base)
        code.field("tid", tid)
        for name in REGISTERS:
            code.field(name, registers.value(name))
        code.field("flags", registers.value("eflags"))
        rax, rip = registers.value("rax"), registers.value("rip")
        again = (rax, rip)
        if registers.in_call:
            # As the kernel does it: the call's number again, two bytes before.
            again = (_RESTART if rax == _RESTART_BLOCK else registers.value("orig_rax"), rip - 2)
            rax = -_EINTR
        for suffix, (value, address) in (("again", again), ("on", (rax, rip))):
            code.field(f"rax_{suffix}", value)
            code.field(f"rip_{suffix}", address)
        code.field("stack", self.locals)
        code.field("area", area)
        code.field("blocked", BLOCKED)
        code.field("size", size)
        code.field("add", add)
        code.field("initialized", initialized)
        code.field("function", base - PASSING_OFFSET + 8)
        # Its own code, which is no parcel: it begins with no token.
        code.field("nothing", base - PASSING_OFFSET + 8)
        self._way_there(code, mapped=size > 0)
        self._way_back(code)
        return code

    def _way_there(self, code: Code, *, mapped: bool) -> None:
        code.label("start")
        code.load("rsp", "stack")
        code.raw("fc")  # cld
        code.number("rdi", _BLOCK)
        code.point("rsi", "blocked")
        code.raw("4889e2")  # mov rdx, rsp
        code.number("r10", 8)
        code.system(_SIGMASK)
        code.load("rbx", "area")
        code.raw("31c0")  # xor eax, eax
        for offset in range(512, 576, 8):  # XSAVE's header has to be 0 beforehand
            code.raw("488983" + struct.pack("<i", offset).hex())  # mov [rbx+offset], rax
        code.number("rax", -1)
        code.number("rdx", -1)
        code.raw("480fae23")  # xsave64 [rbx]
        if mapped:
            self._with_parcel(code)
        else:
            self._with_nothing(code)

    def _with_parcel(self, code: Code) -> None:
        code.number("rdi", 0)
        code.load("rsi", "size")
        code.number("rdx", 3)  # to be read and written
        code.number("r10", 0x22)  # private, anonymous
        code.raw("49c7c0ffffffff 4531c9")  # mov r8, -1; xor r9d, r9d
        code.system(_MMAP)
        code.label("mapped")
        code.raw("48c7442410ffffffff")  # mov qword [rsp+16], -1: not queued
        code.raw("483d00f0ffff")  # cmp rax, -4096
        code.to("0f87", "back")
        code.raw("4889c5")  # mov rbp, rax
        code.raw("48837828 00")  # cmp qword [rax+40], 0
        code.to("0f84", "unmap")  # whoever was to fill it is gone
        code.to("ff15", "initialized")
        code.raw("85c0")  # test eax, eax
        code.to("0f84", "unmap")
        code.load("rdi", "function")
        code.raw("4889ee")  # mov rsi, rbp
        code.to("ff15", "add")
        code.raw("4863c0 4889442410")  # movsxd rax, eax; mov [rsp+16], rax
        code.raw("85c0")
        code.to("0f84", "back")
        code.label("unmap")
        code.raw("4889ef")  # mov rdi, rbp
        code.load("rsi", "size")
        code.system(_MUNMAP)

    def _with_nothing(self, code: Code) -> None:
        code.label("mapped")
        code.raw("48c7442410ffffffff")  # mov qword [rsp+16], -1: not queued
        code.to("ff15", "initialized")
        code.raw("85c0")  # test eax, eax
        code.to("0f84", "back")
        code.load("rdi", "function")
        code.load("rsi", "nothing")
        code.to("ff15", "add")
        code.raw("4863c0 4889442410")  # movsxd rax, eax; mov [rsp+16], rax

    def _way_back(self, code: Code) -> None:
        code.label("back")
        code.number("rax", -1)
        code.number("rdx", -1)
        code.raw("480fae2b")  # xrstor64 [rbx]
        # A call that a signal has interrupted is not made again: the program is to handle the signal.
        code.raw("488d7c2408")  # lea rdi, [rsp+8]
        code.number("rsi", 8)
        code.system(_SIGPENDING)
        code.raw("488b0424 48f7d0 4823442408 4889c3")  # rbx = ~old mask & pending
        code.number("rdi", _SETMASK)
        code.raw("4889e6 31d2")  # mov rsi, rsp; xor edx, edx
        code.number("r10", 8)
        code.system(_SIGMASK)
        code.label("done")
        code.raw("4885db")  # test rbx, rbx
        code.to("0f85", "interrupted")
        self._leave(code, "again")
        code.label("interrupted")
        self._leave(code, "on")

    def _leave(self, code: Code, how: str) -> None:
        for name in REGISTERS:
            if name not in {"rax", "rsp"}:
                code.load(name, name)
        code.load("rax", f"rax_{how}")
        # Signals may come from here on: at every instant the stack pointer is below what the program has there.
        code.load("rsp", "rsp")
        code.raw("488da42478ffffff")  # lea rsp, [rsp-136]
        code.to("ff35", "flags")  # push [flags]
        code.raw("9d")  # popfq
        code.load("rsp", "rsp")
        code.to("ff25", f"rip_{how}")  # jmp [rip]


def stack_bytes(extended_bytes: int) -> int:
    """What has to be free below the stack pointer."""
    return _RED_ZONE + _MARGIN + extended_bytes + 256 + CALL_BYTES
