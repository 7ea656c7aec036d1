"""Which thread of a process to send through, and what its main thread is busy with."""

from __future__ import annotations

import contextlib
import pathlib
import struct
from dataclasses import dataclass
from typing import Optional

from .maps import Mapping, with_address
from .memory import Memory
from .process import read_status, threads

#: Calls in which a thread waits for something, and is held for the shortest time.
_WAITING = {
    0: "read",
    7: "poll",
    16: "ioctl",
    23: "select",
    34: "pause",
    35: "nanosleep",
    43: "accept",
    45: "recvfrom",
    47: "recvmsg",
    61: "wait4",
    128: "rt_sigtimedwait",
    202: "futex",
    230: "clock_nanosleep",
    232: "epoll_wait",
    247: "waitid",
    270: "pselect6",
    271: "ppoll",
    281: "epoll_pwait",
    288: "accept4",
}
_WORDS = {
    "futex": "waiting for a lock or another thread",
    "nanosleep": "sleeping",
    "clock_nanosleep": "sleeping",
    "wait4": "waiting for a child process",
    "waitid": "waiting for a child process",
}
_STACK_BYTES = 4096
_PLUMBING = ("libc.so", "libc-", "ld-", "libpthread", "ld-musl")


@dataclass(frozen=True)
class Inside:
    """What a thread is doing, as far as the system tells cheaply."""

    system_call: Optional[str] = None  # None where it runs
    library: Optional[str] = None  # that made it: "libcuda.so.1"

    @property
    def text(self) -> str:
        """A few words for the user."""
        if self.system_call is None:
            return "running native code" + (f" of {self.library}" if self.library else "")
        words = _WORDS.get(self.system_call, f"in {self.system_call}")
        return words + (f", called from {self.library}" if self.library else "")


def candidates(pid: int) -> list[int]:
    """The threads that may be sent through, the best first: one that waits and is not the main one."""
    found = []
    for tid in threads(pid):
        status = read_status(f"/proc/{pid}/task/{tid}")
        # One that is in a disk's or a driver's hands cannot be stopped; a stopped one does not go on.
        if status is None or status.get("State", "X")[:1] not in "SR":
            continue
        waits = _call(pid, tid)[0] in _WAITING
        found.append((not waits, tid == pid if waits else tid != pid, tid))
    return [tid for _, _, tid in sorted(found)]


def is_interrupted(pid: int, tid: int) -> bool:
    """Whether a signal waits for this thread: the call it is in ends with it, and must not be made again."""
    status = read_status(f"/proc/{pid}/task/{tid}")
    if status is None:
        return True
    pending = int(status.get("SigPnd", "0"), 16) | int(status.get("ShdPnd", "0"), 16)
    return bool(pending & ~int(status.get("SigBlk", "0"), 16))


def is_running(pid: int) -> bool:
    """Whether the main thread is in no system call."""
    return _call(pid, pid)[0] is None


def main_inside(pid: int, memory: Memory, mappings: list[Mapping]) -> Inside:
    """What the main thread is doing."""
    number, pointer = _call(pid, pid)
    if number is None:
        return Inside()
    return Inside(_WAITING.get(number, f"system call {number}"), _library(pointer, memory, mappings))


def _call(pid: int, tid: int) -> tuple[Optional[int], int]:
    """(the system call a thread is in, its stack pointer)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = pathlib.Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()
        if words[0] != "running":
            return int(words[0]), int(words[-2], 16)
    return None, 0


def _library(pointer: int, memory: Memory, mappings: list[Mapping]) -> Optional[str]:
    """The first file below the C library that a return address on the stack points into."""
    stack = with_address(mappings, pointer)
    if stack is None:
        return None
    size = min(_STACK_BYTES, stack.end - pointer) // 8 * 8
    with contextlib.suppress(OSError):
        for (word,) in struct.iter_unpack("<Q", memory.read(pointer, size)):
            mapping = with_address(mappings, word)
            if mapping is None or "x" not in mapping.permissions or not mapping.path:
                continue
            if not mapping.name.startswith(_PLUMBING):
                return mapping.name
    return None
