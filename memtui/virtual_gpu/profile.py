"""What the virtual GPUs are like, and the environment variables that say so to the stand-ins."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Union

from memtui.virtual_gpu.errors import VirtualGpuError

MAX_DEVICES = 16

_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:iB)?|B?)\s*", re.IGNORECASE | re.ASCII)
_SIZE_HELP = "write 24GiB, 500MiB or plain bytes"
_MAX_BYTES = 1 << 50

#: `VGPU_NVML_MEMORY`: how NVML's memory figures fail, if they do.
NVML_FAILURES = ("not_supported", "lost")

Size = Union[int, str]


def parse_size(text: str) -> int:
    """Bytes of "24GiB", "500M" or "4096"; units are powers of 1024.  Raises `VirtualGpuError`."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise VirtualGpuError(f"{text!r} is not a size", _SIZE_HELP)
    size = int(float(match.group(1)) * _UNITS[(match.group(2) or "").upper()])
    if size > _MAX_BYTES:
        raise VirtualGpuError(f"{text!r} is more than the virtual GPUs' limit of 1024TiB", _SIZE_HELP)
    return size


def parse_sizes(text: str) -> tuple[int, ...]:
    """Bytes of each size in "24GiB,80GiB".  Raises `VirtualGpuError`."""
    return tuple(parse_size(part) for part in text.split(","))


def parse_compute_capability(text: str) -> tuple[int, int]:
    """(8, 6) of "8.6".  Raises `VirtualGpuError`."""
    match = re.fullmatch(r"(\d{1,2})\.(\d)", text.strip(), re.ASCII)
    if match is None:
        raise VirtualGpuError(f"{text!r} is not a compute capability", "write 8.6 or 9.0")
    return int(match.group(1)), int(match.group(2))


@dataclass(frozen=True)
class Profile:
    """The virtual GPUs of one launch; all sizes in bytes.

    The default is one NVIDIA RTX A6000.  Its compute capability is 8.6 because torch picks other
    workspaces on 9.0, so figures would differ from those of most cards.
    """

    count: int = 1
    #: A device's memory as NVML tells its total; the last one stands for all further devices.  Torch's
    #: total is this without `driver_reserved_bytes`.
    memory_bytes: tuple[int, ...] = (48 << 30,)
    name: str = "NVIDIA RTX A6000"
    compute_capability: tuple[int, int] = (8, 6)
    multiprocessors: int = 84
    #: Charged once per process and device, as a CUDA context is.
    context_bytes: int = 0
    #: The driver's own share of each device: NVML's `reserved`.
    driver_reserved_bytes: int = 0
    #: The workspace of every cuDNN convolution; None: estimated from its shapes.
    cudnn_workspace_bytes: int | None = None
    #: Charged once per process and device at the first cuDNN convolution, for its kernels; None: as on an A100.
    cudnn_load_bytes: int | None = None
    #: Bytes of device memory that each NCCL communicator of several ranks takes; `None`: see nccl.c.
    nccl_buffers_bytes: int | None = None
    #: The share of its elements, 0 to 1, that `nonzero()` and what is made of it are taken to find.
    selected: float = 0.0
    #: NVML's utilisation in percent.
    utilization: int = 0
    #: "not_supported" or "lost": NVML's memory info fails that way.
    nvml_memory_failure: str | None = None
    #: NVML lists processes without their bytes, as under WSL or in a container.
    process_memory_unavailable: bool = False
    #: Added to every pid that NVML tells, as seen from another pid namespace.
    pid_offset: int = 0
    #: Each process says its peaks on standard error when it ends.
    report: bool = False
    #: Every notable call goes to standard error.
    trace: bool = False
    #: Where each process keeps its report: this path, a dot and its pid.  See report_file.py.
    report_file: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.count <= MAX_DEVICES:
            raise VirtualGpuError(f"{self.count} virtual GPUs", f"between 0 and {MAX_DEVICES} can be had")
        if not self.memory_bytes:
            raise VirtualGpuError("the virtual GPUs have no memory size", _SIZE_HELP)
        if any(size <= 0 for size in self.memory_bytes):
            raise VirtualGpuError("a virtual GPU's memory must be more than nothing", _SIZE_HELP)
        if not 0 <= self.selected <= 1:
            raise VirtualGpuError(f"a share of {self.selected} elements cannot be selected", "between 0 and 1")
        if self.nccl_buffers_bytes is not None and self.nccl_buffers_bytes < 0:
            raise VirtualGpuError("NCCL's buffers cannot be less than nothing", _SIZE_HELP)
        if self.nvml_memory_failure not in (None, *NVML_FAILURES):
            raise VirtualGpuError(
                f"NVML's memory info cannot fail as {self.nvml_memory_failure!r}", "one of " + ", ".join(NVML_FAILURES)
            )

    def environment(self) -> dict[str, str]:
        """The `VGPU_*` variables that the stand-ins read."""
        variables = {
            "VGPU_COUNT": str(self.count),
            "VGPU_MEMORY": ",".join(map(str, self.memory_bytes)),
            "VGPU_NAME": self.name,
            "VGPU_CC": "{}.{}".format(*self.compute_capability),
            "VGPU_SMS": str(self.multiprocessors),
            "VGPU_CONTEXT": str(self.context_bytes),
            "VGPU_DRIVER_RESERVED": str(self.driver_reserved_bytes),
            "VGPU_UTIL": str(self.utilization),
            "VGPU_NVML_PID_OFFSET": str(self.pid_offset),
        }
        if self.cudnn_workspace_bytes is not None:
            variables["VGPU_CUDNN_WORKSPACE"] = str(self.cudnn_workspace_bytes)
        if self.cudnn_load_bytes is not None:
            variables["VGPU_CUDNN_LOAD"] = str(self.cudnn_load_bytes)
        if self.nvml_memory_failure is not None:
            variables["VGPU_NVML_MEMORY"] = self.nvml_memory_failure
        if self.selected:
            variables["VGPU_SELECTED"] = repr(self.selected)
        if self.nccl_buffers_bytes is not None:
            variables["VGPU_NCCL_BUFFERS"] = str(self.nccl_buffers_bytes)
        if self.process_memory_unavailable:
            variables["VGPU_NVML_PROCESS_MEMORY"] = "unavailable"
        if self.report:
            variables["VGPU_REPORT"] = "1"
        if self.trace:
            variables["VGPU_TRACE"] = "1"
        if self.report_file is not None:
            variables["VGPU_REPORT_FILE"] = os.path.abspath(self.report_file)
        return variables


def profile_of(
    *,
    memory: Size = 48 << 30,
    context: Size = 0,
    driver_reserved: Size = 0,
    cudnn_workspace: Size | None = None,
    cudnn_load: Size | None = None,
    cc: str = "8.6",
    **others: object,
) -> Profile:
    """A profile whose sizes may be texts: `profile_of(memory="24GiB,80GiB", count=2)`.

    `others` are fields of `Profile`.  Raises `VirtualGpuError` for a size that is none.
    """
    return Profile(
        memory_bytes=(memory,) if isinstance(memory, int) else parse_sizes(memory),
        context_bytes=_bytes(context),
        driver_reserved_bytes=_bytes(driver_reserved),
        cudnn_workspace_bytes=None if cudnn_workspace is None else _bytes(cudnn_workspace),
        cudnn_load_bytes=None if cudnn_load is None else _bytes(cudnn_load),
        compute_capability=parse_compute_capability(cc),
        **others,  # type: ignore[arg-type]  # Profile itself names an unknown field
    )


def _bytes(size: Size) -> int:
    return size if isinstance(size, int) else parse_size(size)
