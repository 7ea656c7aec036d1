"""A process and its machine as the operating system sees them, from /proc alone: psutil is not carried."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import time
from typing import Optional

from memtui.inject.process import read_status
from memtui.session.readings import HostReading
from memtui.sources.cgroup import memory_limit

_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessReader:
    """Reads one process; one that ends stays ended, also when its pid is given out again."""

    def __init__(self, pid: int, started: Optional[int] = None) -> None:
        """`started` is when it was, in the kernel's ticks; without it that of the process that has the pid now."""
        self.pid = pid
        self._started = started
        self._gone = False
        self._before: Optional[tuple[int, int]] = None  # of the processor time: when, and how much

    def read(self) -> HostReading:
        """The figures now; what cannot be read is None."""
        now = time.monotonic_ns()
        memory = _meminfo()
        fields = None if self._gone else _stat(self.pid)
        if fields is not None and self._started is None:
            self._started = int(fields[19])
        status = read_status(f"/proc/{self.pid}") if fields is not None else None
        if fields is None or status is None or int(fields[19]) != self._started:
            self._gone = True
            return HostReading(now, alive=False, total_bytes=memory.get("MemTotal"))
        zombie = fields[0] in "ZX"
        limit = memory_limit(self.pid, memory.get("MemTotal") or 1 << 62)
        uid = int(status.get("Uid", "0").split()[0])
        return HostReading(
            time_ns=now,
            alive=not zombie,
            rss_bytes=None if zombie else _kib(status.get("VmRSS")),
            cpu_percent=None if zombie else self._cpu_percent(fields, now),
            name=status.get("Name", ""),
            cmdline=_cmdline(self.pid),
            user=_user(uid),
            created_s=time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(fields[19]) / _TICKS,
            total_bytes=memory.get("MemTotal"),
            available_bytes=memory.get("MemAvailable"),
            limit_bytes=None if limit is None else limit.limit_bytes,
            limit_room_bytes=None if limit is None else limit.room_bytes,
            file_bytes=None if zombie else _kib(status.get("RssFile")),
            zombie=zombie,
            stopped=fields[0] == "T",
        )

    def _cpu_percent(self, fields: list[str], now_ns: int) -> float:
        used = (int(fields[11]) + int(fields[12])) * 1_000_000_000 // _TICKS
        before, self._before = self._before, (now_ns, used)
        if before is None or now_ns <= before[0]:
            return 0.0
        return round(100 * (used - before[1]) / (now_ns - before[0]), 1)


def _stat(pid: int) -> Optional[list[str]]:
    """The fields behind the name, which is in parentheses and may hold anything."""
    with contextlib.suppress(OSError, IndexError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return None


def _cmdline(pid: int) -> tuple[str, ...]:
    with contextlib.suppress(OSError):
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return tuple(word.decode(errors="replace") for word in words if word or len(words) > 1)
    return ()


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _meminfo() -> dict[str, int]:
    found = {}
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            size = _kib(value)
            if name in ("MemTotal", "MemAvailable") and size is not None:
                found[name] = size
    return found


def _kib(text: Optional[str]) -> Optional[int]:
    word = (text or "").split()[:1]
    return int(word[0]) * 1024 if word and word[0].isdigit() else None
