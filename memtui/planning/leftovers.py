"""Processes of a program that outlive it."""

from __future__ import annotations

import os
import signal
import time

#: Every process of a throw-away run has the scratch folder's path in this variable.
MARK = "MEMTUI_THROWAWAY"

#: Helpers of Python's multiprocessing end by themselves, just after the program.
_PATIENCE_SECONDS = 0.5

_GONE_SECONDS = 5.0


def kill_leftovers(scratch: str) -> list[int]:
    """Kill every process of this user that carries the mark and does not end soon, and wait until it is gone.

    Returns the pids of those killed.
    """
    killed: list[int] = []
    begin = time.monotonic()
    while time.monotonic() < begin + _GONE_SECONDS:
        # Again until there are none: one may have forked meanwhile.
        found = find_leftovers(scratch)
        if not found:
            break
        for pid in found if time.monotonic() > begin + _PATIENCE_SECONDS else ():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            if pid not in killed:
                killed.append(pid)
        time.sleep(0.02)
    return killed


def find_leftovers(scratch: str) -> list[int]:
    """The processes that carry the mark of a scratch folder."""
    mark = f"{MARK}={scratch}".encode()
    return [pid for pid in _other_processes() if mark in _environment(pid)]


def _other_processes() -> list[int]:
    me = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != me]


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []  # another user's, gone, or a zombie
