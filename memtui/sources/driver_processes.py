"""Whose memory is on a device: the driver's list of processes, and which of them is ours."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable
from typing import Any, Optional

import pynvml

from memtui.session.readings import OtherProcess

#: 2**64 - 1 stands for "not available"; so does what no device holds.
_NO_VALUE = 1 << 62

#: So many letters of a process's name the kernel keeps.
_KERNEL_NAME = 15

_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)


def listed_processes(handle: Any) -> tuple[Optional[dict[int, Optional[int]]], str]:
    """Bytes by pid as the driver counts them, each process once; None where it gives no list, and why."""
    found: dict[int, Optional[int]] = {}
    reason, answered = "", False
    for name in _LISTS:
        function = getattr(pynvml, name, None)
        if function is None:
            continue
        try:
            entries = function(handle)
        except pynvml.NVMLError_Uninitialized:
            raise
        except pynvml.NVMLError as error:
            if name == _LISTS[0]:
                reason = _list_reason(error)
            continue
        answered = True
        for entry in entries:
            held = entry.usedGpuMemory
            known = None if held is None or not 0 <= held < _NO_VALUE else int(held)
            # A process that computes and draws is in both lists with the same figure.
            before = found.get(int(entry.pid))
            found[int(entry.pid)] = known if before is None else max(before, known or 0)
    if reason or not answered:
        return None, reason or "the driver gives no list of processes"
    return found, ""


def split_processes(
    processes: Optional[dict[int, Optional[int]]], pid: int
) -> tuple[Optional[int], Optional[tuple[OtherProcess, ...]], str]:
    """(bytes of process `pid`, the others, why its bytes are unknown)."""
    if processes is None:
        return None, None, ""
    ours = listed_as(processes, pid)
    others = tuple(
        OtherProcess(other, held, process_name(other)) for other, held in sorted(processes.items()) if other != ours
    )
    if ours is None:
        return None, others, _missing_reason(processes)
    if processes[ours] is None:
        return None, others, "the driver gives no figures by process here (WSL, MIG, or a virtual GPU)"
    return processes[ours], others, ""


def listed_as(processes: Iterable[int], pid: int) -> Optional[int]:
    """The pid under which the driver knows our `pid`: itself, or that of an outer namespace where it can be seen."""
    pids = list(processes)
    if pid in pids:
        return pid
    outer = [other for other in pids if namespaced_pids(other)[1:] and namespaced_pids(other)[-1] == pid]
    return outer[0] if len(outer) == 1 else None


def _missing_reason(processes: dict[int, Optional[int]]) -> str:
    if processes and not any(os.path.exists(f"/proc/{pid}") for pid in processes):
        return "the driver counts processes of another pid namespace (a container): ours cannot be told among them"
    return ""


def namespaced_pids(pid: int) -> list[int]:
    """The pids of a process from this namespace inwards; empty where it cannot be seen."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return []
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return [int(word) for word in line.split()[1:]]
    return []


def process_name(pid: int) -> str:
    """A name for people; memory can also be held by what is no longer running."""
    try:
        head, _, rest = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
        if rest.split()[0] in "ZX":
            return "(zombie)"
        name = head.partition("(")[2]
        if len(name) < _KERNEL_NAME:
            return name
        # The kernel keeps the first letters only.
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        whole = os.path.basename(words[0].decode(errors="replace"))
        return whole if whole.startswith(name) else name
    except FileNotFoundError:
        return "(not visible here)"
    except (OSError, IndexError):
        return ""


def _list_reason(error: pynvml.NVMLError) -> str:
    if isinstance(error, pynvml.NVMLError_NoPermission):
        return "the driver shows this user no processes"
    if isinstance(error, pynvml.NVMLError_NotSupported):
        return "the driver gives no list of processes here (WSL, MIG, or a virtual GPU)"
    return f"no list of processes: {error}"
