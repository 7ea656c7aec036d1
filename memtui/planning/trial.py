"""What was seen of one run of a program on virtual GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from memtui.session.steps import StepPeak
from memtui.virtual_gpu.report_file import HostRead, Note

Ending = Literal["steady", "steps", "exit", "failed", "out of memory", "interrupted", "host memory", "rising"]


@dataclass(frozen=True)
class Composition:
    """What was allocated at one instant, by category; the bytes add up to `allocated_bytes`.

    `at_peak` says that the instant is that of a recorded step's peak; else it is the boundary nearest to the peak.
    """

    step: int  # its number, the first being 1
    phase: str
    allocated_bytes: int
    categories: dict[str, int]
    at_peak: bool


@dataclass(frozen=True)
class Activations:
    """What one forward pass of a recorded step kept for its backward pass, and of how many tokens or samples.

    `unit` is "token", `shape` that of the texts' numbers; or "sample", along the first dimension of the first input.
    """

    kept_bytes: int
    unit: str
    count: int
    shape: str

    @property
    def bytes_each(self) -> int:
        return round(self.kept_bytes / self.count)


@dataclass(frozen=True)
class OutOfMemory:
    """An allocation that torch gave up; sizes in bytes, None where unknown."""

    step: int  # its number, the first being 1
    phase: str
    asked_bytes: Optional[int]
    allocated_bytes: Optional[int]
    reserved_bytes: Optional[int]
    device_free_bytes: Optional[int]


@dataclass(frozen=True)
class DeviceTrial:
    """One device; peaks are of the whole run, those of the allocator of the process that was watched.

    `peak_device_bytes` is of all processes and with their contexts, as the virtual driver has counted them.
    """

    device: str
    usable_bytes: Optional[int]
    context_bytes: Optional[int]
    peak_allocated_bytes: Optional[int]
    peak_reserved_bytes: Optional[int]
    peak_device_bytes: Optional[int]
    peak: Optional[StepPeak]  # the highest step
    steps: tuple[StepPeak, ...]
    composition: Optional[Composition]
    num_alloc_retries: int = 0
    oom: Optional[OutOfMemory] = None
    activations: Optional[Activations] = None


@dataclass(frozen=True)
class HostUse:
    """The host's memory in one run, in bytes, None where unknown.

    `parameter_bytes` were built there; of more than `kept_bytes` the initial values were left out. `taken_bytes` is
    what a run had taken that was ended for it.
    """

    available_bytes: Optional[int] = None
    parameter_bytes: Optional[int] = None
    kept_bytes: Optional[int] = None
    taken_bytes: Optional[int] = None


@dataclass(frozen=True)
class Trial:
    """One run, to its end or until it was ended. `steps` were completed; `error` is one line of why it failed."""

    ended: Ending
    exit_status: Optional[int]
    error: str
    steps: int
    duration_ns: int
    devices: tuple[DeviceTrial, ...]
    notes: tuple[Note, ...] = ()
    host_reads: tuple[HostRead, ...] = ()
    warnings: tuple[str, ...] = ()
    output: str = ""  # the end of what the program wrote
    host: HostUse = HostUse()

    @property
    def fullest(self) -> Optional[DeviceTrial]:
        """The device with most memory used; None where no device was."""
        return max(self.devices, key=lambda each: each.peak_device_bytes or each.peak_reserved_bytes or 0, default=None)

    @property
    def watched(self) -> Optional[DeviceTrial]:
        """The fullest device of the process that was watched; of any where none of its is known."""
        known = [each for each in self.devices if each.peak_allocated_bytes is not None]
        return max(known, key=lambda each: each.peak_device_bytes or 0, default=self.fullest)

    @property
    def used_a_gpu(self) -> bool:
        """Whether more than a context was ever on a device."""
        return any(
            each.peak_allocated_bytes or (each.peak_device_bytes or 0) > (each.context_bytes or 0)
            for each in self.devices
        )

    @property
    def out_of_memory(self) -> bool:
        """Whether it ended for want of device memory."""
        return self.ended == "out of memory"
