"""What the viewer measures itself, beside the agent: the driver's figures and the host's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class OtherProcess:
    """Another process that holds memory on a device; `bytes_held` is None where the driver does not say."""

    pid: int
    bytes_held: Optional[int]
    name: str  # "python", "(zombie)", "(gone)", or "" where it cannot be seen


@dataclass(frozen=True)
class DeviceReading:
    """One device as its driver sees it at one instant; what it would not tell is None and `reason` says why."""

    uuid: str  # "GPU-…" or "MIG-…", as NVML writes it
    time_ns: int
    index: Optional[int] = None  # the driver's own, which is not torch's
    name: str = ""
    total_bytes: Optional[int] = None
    used_bytes: Optional[int] = None
    free_bytes: Optional[int] = None
    driver_reserved_bytes: Optional[int] = None  # None with memory info v1, which counts it as used
    process_bytes: Optional[int] = None  # the monitored process; None where it is not listed
    others: Optional[tuple[OtherProcess, ...]] = None  # None where there is no list of processes at all
    utilisation_percent: Optional[int] = None
    power_milliwatts: Optional[int] = None
    power_limit_milliwatts: Optional[int] = None
    temperature_celsius: Optional[int] = None
    reason: str = ""

    def other_process_bytes(self) -> int | None:
        """Bytes of all other processes; None where the list or one of its figures cannot be had."""
        if self.others is None:
            return None
        held = [process.bytes_held for process in self.others]
        known = [value for value in held if value is not None]
        return sum(known) if len(known) == len(held) else None


@dataclass(frozen=True)
class DriverReading:
    """All devices asked for, read one after the other; `reason` is why there are none."""

    time_ns: int
    devices: tuple[DeviceReading, ...] = ()
    driver_version: str = ""
    reason: str = ""


@dataclass(frozen=True)
class HostReading:
    """The process and the machine as the operating system sees them."""

    time_ns: int
    alive: bool  # a zombie is not alive
    rss_bytes: Optional[int] = None
    cpu_percent: Optional[float] = None
    name: str = ""
    cmdline: tuple[str, ...] = ()
    user: str = ""
    created_s: Optional[float] = None  # wall clock
    total_bytes: Optional[int] = None  # of the machine
    available_bytes: Optional[int] = None  # what the machine could still give to anybody
    limit_bytes: Optional[int] = None  # the lowest of its control groups, where that is less than the machine's
    limit_room_bytes: Optional[int] = None  # what is left under such limits
    file_bytes: Optional[int] = None  # the part of the resident set that the system counts as available, too
    zombie: bool = False
    stopped: bool = False  # by a signal
    reason: str = ""

    @property
    def capacity_bytes(self) -> Optional[int]:
        """The most that this process and what shares its limit can have."""
        return self.total_bytes if self.limit_bytes is None else self.limit_bytes

    @property
    def room_bytes(self) -> Optional[int]:
        """How much this process can still grow by, its own files' pages kept; None where that is not known."""
        if self.available_bytes is None:
            return None
        rooms = (
            [self.available_bytes] if self.limit_room_bytes is None else [self.available_bytes, self.limit_room_bytes]
        )
        return min(rooms) - (self.file_bytes or 0)


@dataclass(frozen=True)
class OptimizerTrial:
    """What an optimizer's first steps take on one device, by its own `step` on tensors without memory.

    Bytes are of blocks, each a multiple of 512. `first_bytes` and `later_bytes` are the most that the first and a later
    step add to what there is when it begins; None where only the state could be told. `events` is what the first step
    does in its order: n makes a block of `sizes[n]` bytes, -n - 1 frees it.
    """

    time_ns: int
    where: str  # module:class
    device: str
    trainable_bytes: int  # of the parameters that it steps: with the class, which optimizer this is
    state_bytes: Optional[int] = None  # that the first step makes; None where it could not be told
    first_bytes: Optional[int] = None
    later_bytes: Optional[int] = None
    decided: bool = False  # values decide how much state there is: this is the most
    reason: str = ""  # why nothing could be told
    sizes: tuple[int, ...] = ()
    events: tuple[int, ...] = ()


@dataclass(frozen=True)
class SteadyStep:
    """What a recorded step comes to when the allocator's rules do it again and again: predicted peaks, in bytes.

    `exact` where each allocation was given its recorded address and the steps went on alike; else the peaks are lower
    bounds. `asked_bytes` is a request that would fail in the `failing_step`-th step from then, though `free_bytes`
    would be free.
    """

    time_ns: int
    device: str
    step: int  # completed before the recorded one, as in its message
    allocated_bytes: int
    reserved_bytes: int
    exact: bool
    basis: str
    growth_bytes: int = 0  # that each step leaves behind
    failing_step: Optional[int] = None
    asked_bytes: Optional[int] = None
    free_bytes: Optional[int] = None
    allocated_peak_bytes: Optional[int] = None  # counted until then
    reserved_peak_bytes: Optional[int] = None


@dataclass(frozen=True)
class ShapeForecast:
    """The peaks of a training whose batches are of another size than the recorded ones: predicted, in bytes.

    `asked` is the size as the user wrote it, "" for the largest that was seen. Where `reason` says why there is no
    forecast, or a request fails, there are no peaks.
    """

    time_ns: int  # the newest recorded step's end
    device: str
    asked: str = ""
    allocated_bytes: Optional[int] = None
    reserved_bytes: Optional[int] = None
    factor: Optional[float] = None  # of the largest recorded batch
    input_bytes: Optional[int] = None  # of the largest block of the step's input
    by_peak: bool = False  # the largest that was seen was not recorded: its size is told by its peak
    failed_bytes: Optional[int] = None  # a request that would fail
    basis: str = ""
    own_error_percent: Optional[float] = None  # of the largest recorded step's peak, foretold by the others
    reason: str = ""


@dataclass(frozen=True)
class ToldForecast:
    """A device's predicted peak as somebody else has told it, who knows more of the process than is here; bytes."""

    allocated_bytes: int
    device_bytes: Optional[int] = None
    headroom_bytes: Optional[int] = None
    source: str = ""


def bare_uuid(uuid: str) -> str:
    """A UUID without the "GPU-" or "MIG-" that torch leaves out and NVML does not."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")
