"""The ranks of a run beside the one that is watched: whether they have come as far."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from memtui.session.session import Session
from memtui.virtual_gpu.report_file import read_reports

#: So long after enough was seen of one rank the others are waited for at most.
_PATIENCE_NS = 15_000_000_000
#: What ranks of the same program differ by at most, as a rule.
_ALIKE = 0.9


class Ranks:
    """Since when each rank uses a device and how much, from the reports of the virtual GPUs under a prefix.

    Virtual collectives wait for nobody: a rank that started later would be ended before its peak.
    """

    def __init__(self, prefix: Path) -> None:
        self._prefix = prefix
        self._begun_ns: dict[int, int] = {}
        self._peak_bytes: dict[int, int] = {}
        self._enough_ns: Optional[int] = None

    def look(self, now_ns: int) -> None:
        """Takes in the reports."""
        for report in read_reports(self._prefix):
            if report.devices:
                self._begun_ns.setdefault(report.pid, now_ns)
                self._peak_bytes[report.pid] = sum(
                    device.peak_bytes - device.context_bytes for device in report.devices
                )

    def level(self, session: Session, now_ns: int) -> bool:
        """Whether every rank had as long as the watched one took, now that enough was seen of that, and came to some
        nine tenths of its memory; ranks that never do are waited for in vain, but not long.
        """
        count = 1 if session.hello is None else session.hello.world_size or 1
        if count < 2:
            return True
        if self._enough_ns is None:
            self._enough_ns = now_ns
        if now_ns - self._enough_ns > _PATIENCE_NS:
            return True
        watched = session.pid
        if watched not in self._begun_ns or len(self._begun_ns) < count:
            return False
        low = min(self._peak_bytes.values()) < _ALIKE * self._peak_bytes[watched]
        took_ns = self._enough_ns - self._begun_ns[watched]
        return not low and now_ns - max(self._begun_ns.values()) >= took_ns
