"""What is known of one graphics card, each uncertain figure with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MIB = 1 << 20
GIB = 1 << 30

#: "measured" here; "cited" as others print it; "derived" from such figures; "given" by the user.
Kind = Literal["measured", "cited", "derived", "given", "unknown"]

Group = Literal["data centre", "workstation", "consumer", "Jetson", "MIG slice", "size"]


@dataclass(frozen=True)
class Figure:
    """A number of bytes and how it is known; `value_bytes` is `None` exactly where the kind is "unknown"."""

    value_bytes: int | None
    kind: Kind
    #: What was read, under which software, and by whom where there is a name to give.
    source: str


UNKNOWN = Figure(None, "unknown", "no figure found")


@dataclass(frozen=True)
class Card:
    """A card, or a slice of one, under one driver on Linux; all sizes in bytes."""

    #: How it is named on the command line: "a100-80g".
    name: str
    #: As the driver and torch report it: "NVIDIA A100-SXM4-80GB".
    full_name: str
    group: Group
    #: The memory that it is sold with; `None` for a plain size.
    box_bytes: int | None
    compute_capability: tuple[int, int]
    multiprocessors: int
    #: `torch.cuda.get_device_properties(0).total_memory`, which is also the total of `cudaMemGetInfo`.
    total: Figure
    #: The total of NVML and nvidia-smi, from which the driver's share is not taken off.
    nvml_total_bytes: int | None = None
    #: A process's CUDA context in nvidia-smi where kernels are loaded as they are needed (torch 1.13 and later).
    context: Figure = UNKNOWN
    #: The same where all kernels are loaded at once, as older torch did: more than what is to be expected today.
    eager_context: Figure = UNKNOWN
    #: Its memory is the computer's: what other programs use of that is missing as well.
    unified_memory: bool = False

    @property
    def total_bytes(self) -> int:
        """What torch calls the card's total memory."""
        assert self.total.value_bytes is not None  # no card is listed without it
        return self.total.value_bytes

    @property
    def driver_reserved(self) -> Figure:
        """NVML's `reserved`: its total less CUDA's, which is what nvidia-smi shows of seven cards, to the MiB."""
        if self.nvml_total_bytes is None or self.nvml_total_bytes == self.total_bytes:
            return UNKNOWN
        source = f"nvidia-smi's total of {self.nvml_total_bytes // MIB:,} MiB less CUDA's"
        return Figure(self.nvml_total_bytes - self.total_bytes, "derived", source)

    @property
    def driver_reserved_bytes(self) -> int | None:
        """NVML's `reserved`, or `None`."""
        return self.driver_reserved.value_bytes

    @property
    def context_bytes(self) -> int | None:
        """What a process's CUDA context takes, or `None`."""
        return self.context.value_bytes
