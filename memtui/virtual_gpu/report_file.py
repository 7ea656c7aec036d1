"""What the virtual GPUs of one run say of it: bytes, allocations that failed, and what is only estimated.

Every process that used a device keeps a file of its own, `PREFIX.PID`, current at any time; the prefix is
`Profile.report_file`.  The layout is src/report_file.h's.
"""

from __future__ import annotations

import glob
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memtui.virtual_gpu.errors import VirtualGpuError
from memtui.virtual_gpu.profile import MAX_DEVICES

_MAGIC = b"VGPURPT1"
_HEAD = struct.Struct("<8sQQ")
_DEVICE = struct.Struct("<10Q")
_NOTE = struct.Struct("<16s232sQ")
_NOTES = 512
_FILE_BYTES = _HEAD.size + MAX_DEVICES * _DEVICE.size + _NOTES * _NOTE.size

ESTIMATED, REFUSED, HOST_READ = "estimated", "refused", "host read"

#: Operators whose result has as many elements as the values say.
_SHAPE_OPERATORS = frozenset(
    {
        "nonzero",
        "nonzero_numpy",
        "argwhere",
        "masked_select",
        "repeat_interleave",
        "unique",
        "unique_dim",
        "unique_consecutive",
        "unique_dim_consecutive",
        "bincount",
        "nms",
        "to_sparse",
        "coalesce",
        "one_hot",
    }
)
_UNKNOWN_OPERATORS = frozenset({"unknown", "others"})
_READ_NAME = re.compile(r"(?:(?P<file>.+):(?P<line>\d+)|\?) (?P<what>\S+)", re.DOTALL)


@dataclass(frozen=True)
class DeviceReport:
    """One process on one device; all sizes in bytes, the context's included in the driver's."""

    index: int
    usable_bytes: int
    context_bytes: int
    #: At the end of a process: what it still held.
    current_bytes: int
    peak_bytes: int
    #: Of all processes, at the allocations of this one: the run's is the highest of its processes'.
    device_peak_bytes: int
    #: Requests to the driver; torch may have had a later one answered after freeing its cache.
    failed_allocations: int
    first_failed_bytes: int | None
    largest_failed_bytes: int | None
    free_at_first_failure_bytes: int | None


@dataclass(frozen=True)
class Note:
    """One thing that a run depended on, and how often: `kind` is "estimated", "refused" or "host read"."""

    kind: str
    name: str
    count: int


@dataclass(frozen=True)
class HostRead:
    """Values that the host read and that were zeros, by the line of Python outside torch that asked."""

    #: `None` where no line is known: a thread of torch's own, or one line too many for the table.
    file: str | None
    line: int | None
    #: "item", "copy", "print", torch's name of an operator, or "unknown".
    what: str
    count: int

    @property
    def drives_a_shape(self) -> bool | None:
        """Whether the operator's result is sized by these values; `None` where the operator is not known."""
        return None if self.what in _UNKNOWN_OPERATORS else self.what in _SHAPE_OPERATORS


@dataclass(frozen=True)
class ProcessReport:
    """One process of a run."""

    pid: int
    devices: tuple[DeviceReport, ...]
    notes: tuple[Note, ...]

    @property
    def host_reads(self) -> tuple[HostRead, ...]:
        """The notes of the kind "host read", taken apart."""
        return tuple(_host_read(note) for note in self.notes if note.kind == HOST_READ)


def read_reports(prefix: str | os.PathLike[str]) -> tuple[ProcessReport, ...]:
    """The reports of every process under a prefix, by pid; none where no process used a device.

    One that a process is just making is left out. Raises `VirtualGpuError` for a file that is no report.
    """
    found = glob.glob(glob.escape(os.fspath(prefix)) + ".*")
    paths = [path for path in found if re.fullmatch(r"\.\d+(\.\d+)?", path[len(os.fspath(prefix)) :])]
    return tuple(sorted(map(read_report, filter(_is_made, paths)), key=lambda report: report.pid))


def _is_made(path: str) -> bool:
    """Whether its first bytes are there, which are written last."""
    try:
        with open(path, "rb") as file:
            return any(file.read(len(_MAGIC)))
    except OSError:
        return True  # which is told when it is read


def read_report(path: str | os.PathLike[str]) -> ProcessReport:
    """One process's report, which may still be running.  Raises `VirtualGpuError` for a file that is none."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise VirtualGpuError(f"cannot read {os.fspath(path)}: {error.strerror}", "run the program again") from error
    if len(content) != _FILE_BYTES or not content.startswith(_MAGIC):
        raise VirtualGpuError(f"{os.fspath(path)} is not a virtual GPU's report", "name the prefix of a run's reports")
    _, pid, _ = _HEAD.unpack_from(content)
    return ProcessReport(pid, tuple(_devices(content)), tuple(_notes(content)))


def _devices(content: bytes) -> Iterator[DeviceReport]:
    for index in range(MAX_DEVICES):
        fields = _DEVICE.unpack_from(content, _HEAD.size + index * _DEVICE.size)
        seen, usable, context, current, peak, device_peak, failed, largest, first, free = fields
        if seen:
            yield DeviceReport(
                index=index,
                usable_bytes=usable,
                context_bytes=context,
                current_bytes=current,
                peak_bytes=peak,
                device_peak_bytes=device_peak,
                failed_allocations=failed,
                first_failed_bytes=first if failed else None,
                largest_failed_bytes=largest if failed else None,
                free_at_first_failure_bytes=free if failed else None,
            )


def _notes(content: bytes) -> Iterator[Note]:
    start = _HEAD.size + MAX_DEVICES * _DEVICE.size
    for kind, name, count in _NOTE.iter_unpack(content[start:]):
        if count:
            yield Note(_text(kind), _text(name), count)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _host_read(note: Note) -> HostRead:
    match = _READ_NAME.fullmatch(note.name)
    if match is None:
        return HostRead(None, None, "unknown", note.count)
    line = match["line"]
    return HostRead(match["file"], int(line) if line else None, match["what"], note.count)
