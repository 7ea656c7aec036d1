"""The process and the machine as the operating system sees them, through psutil."""

from __future__ import annotations

import contextlib
import pathlib
import time
from typing import Optional

import psutil

from memtui.session.readings import HostReading

from .cgroup import memory_limit


class HostSource:
    """Reads one process; a process that ends stays ended, also when its pid is given out again."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._process: Optional[psutil.Process] = None
        self._identity = HostReading(0, True)
        self._gone = False

    def read(self) -> HostReading:
        """The figures now; about 0.3 ms. What may not be read is None, with the reason."""
        now = time.monotonic_ns()
        memory = psutil.virtual_memory()
        limit = memory_limit(self.pid, memory.total)
        told = self._identity
        reason = ""
        rss = cpu = None
        zombie = stopped = False
        try:
            if self._process is None and not self._gone:
                self._process = psutil.Process(self.pid)
                self._process.cpu_percent()  # the first call only sets the beginning
            process = self._process
            if process is not None and not process.is_running():
                self._gone = True
            elif process is not None:
                with process.oneshot():
                    status = process.status()
                    zombie, stopped = status == psutil.STATUS_ZOMBIE, status == psutil.STATUS_STOPPED
                    told = self._identity = self._identify(process)
                    rss = process.memory_info().rss if not zombie else None
                    cpu = process.cpu_percent() if not zombie else None
        except psutil.ZombieProcess:
            zombie = True
        except psutil.NoSuchProcess:
            self._gone = True
        except psutil.AccessDenied:
            reason = f"process {self.pid} may not be read: it belongs to another user"
        return HostReading(
            time_ns=now,
            alive=not self._gone and not zombie,
            rss_bytes=rss,
            cpu_percent=cpu,
            name=told.name,
            cmdline=told.cmdline,
            user=told.user,
            created_s=told.created_s,
            total_bytes=memory.total,
            available_bytes=memory.available,
            limit_bytes=None if limit is None else limit.limit_bytes,
            limit_room_bytes=None if limit is None else limit.room_bytes,
            file_bytes=_file_bytes(self.pid) if rss is not None else None,
            zombie=zombie,
            stopped=stopped,
            reason=reason,
        )

    def _identify(self, process: psutil.Process) -> HostReading:
        told = self._identity
        # A command line can change by exec, once, soon after the start; it is cheap, the user's name is not.
        user = told.user
        if not user:
            try:
                user = process.username()
            except (KeyError, psutil.Error):
                user = str(process.uids().real)
        return HostReading(
            0, True, name=process.name(), cmdline=tuple(process.cmdline()), user=user, created_s=process.create_time()
        )


def _file_bytes(pid: int) -> Optional[int]:
    """Resident pages of files (programs, libraries): the system takes them back before it refuses memory."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("RssFile:"):
                return int(line.split()[1]) * 1024
    return None
