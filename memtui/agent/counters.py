"""Reads each backend's own memory counters; never allocates on a device, synchronises or resets anything."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Optional

from ..wire.frames import Device

if TYPE_CHECKING:
    from .exact import ExactPeaks

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

#: What one read gives, by the frame's field names.
Figures = dict[str, Optional[int]]

#: A cap is asked for no more often.
_CAP_EVERY_NS = 1_000_000_000

#: What cudaMallocAsync does not count, for which torch says 0.
_UNKNOWN: Figures = dict.fromkeys(
    (
        *("requested_bytes", "inactive_split_bytes", "num_segments"),
        *("num_blocks", "num_alloc_retries", "num_ooms"),
    )
)


class CudaCounters:
    """The caching allocator of one CUDA or ROCm device."""

    def __init__(self, torch: Any, index: int) -> None:
        self._read = torch._C._cuda_memoryStats
        # A torch that is too old to tell leaves the cap unknown.
        self._fraction: Any = getattr(torch._C, "_cuda_getMemoryFraction", None)
        self._allowed_bytes: Optional[int] = None
        self._allowed_due_ns = 0
        self._exact: Optional[ExactPeaks] = None
        self.index = index
        self.device = f"cuda:{index}"
        self.native = True  # else blocks cannot be read
        with contextlib.suppress(AttributeError, RuntimeError):
            self.native = torch.cuda.get_allocator_backend() == "native"
        self._describe(torch)

    def _describe(self, torch: Any) -> None:
        properties = torch.cuda.get_device_properties(self.index)
        uuid = getattr(properties, "uuid", None)
        rocm = getattr(torch.version, "hip", None) is not None
        self.info = Device(
            device=self.device,
            kind="rocm" if rocm else "cuda",
            name=str(properties.name),
            counters="caching allocator" if self.native else "cudaMallocAsync",
            uuid=f"GPU-{uuid}" if uuid is not None else None,
            pci_bus_id=_pci(properties),
            total_bytes=int(properties.total_memory),
            untested=rocm,
            multi_processor_count=getattr(properties, "multi_processor_count", None),
            max_threads_per_multi_processor=getattr(properties, "max_threads_per_multi_processor", None),
        )

    def take_from(self, exact: ExactPeaks) -> None:
        """From now on the peaks of this device are taken at each step's end."""
        exact.follow(self.index)
        self._exact = exact

    def read(self) -> Figures:
        """The allocator's counters now, as the program sees them. Source: torch._C._cuda_memoryStats."""
        return self._figures(self._read(self.index) if self._exact is None else self._exact.read(self.index)[0])

    def read_counted(self) -> tuple[Figures, int]:
        """The same, and the most allocated since the peak was last reset, by the program or for a step's end."""
        if self._exact is None:
            stats = self._read(self.index)
            return self._figures(stats), stats["allocated_bytes"]["all"]["peak"]
        stats, counted_bytes = self._exact.read(self.index)
        return self._figures(stats), counted_bytes

    def _allow(self, now_ns: int) -> None:
        """Asks for the most that the program lets the allocator reserve: None without such a cap.

        Source: torch._C._cuda_getMemoryFraction, a share of the device's memory.
        """
        self._allowed_due_ns = now_ns + _CAP_EVERY_NS
        try:
            share = self._fraction(self.index)
        except RuntimeError:  # an allocator that has none
            self._fraction, self._allowed_bytes = None, None
            return
        total = self.info.total_bytes
        self._allowed_bytes = round(share * total) if share < 1 and total is not None else None

    def _figures(self, stats: Any) -> Figures:
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        figures = {
            "allocated_bytes": allocated["current"],
            "allocated_peak_bytes": allocated["peak"],
            "reserved_bytes": reserved["current"],
            "reserved_peak_bytes": reserved["peak"],
            "active_bytes": stats["active_bytes"]["all"]["current"],
            "requested_bytes": stats["requested_bytes"]["all"]["current"] if "requested_bytes" in stats else None,
            "inactive_split_bytes": stats["inactive_split_bytes"]["all"]["current"],
            "num_segments": stats["segment"]["all"]["current"],
            "num_blocks": stats["allocation"]["all"]["current"],
            "num_alloc_retries": stats["num_alloc_retries"],
            "num_ooms": stats["num_ooms"],
        }
        if not self.native:
            figures.update(_UNKNOWN)
        now_ns = time.monotonic_ns()
        if now_ns >= self._allowed_due_ns and self._fraction is not None:
            self._allow(now_ns)
        if self._allowed_bytes is not None:
            figures["allowed_bytes"] = self._allowed_bytes
        return figures

    def used(self) -> bool:
        """Whether this process has ever reserved memory on the device."""
        # Torch's count of segments leaves expandable ones out.
        return bool(self._read(self.index)["reserved_bytes"]["all"]["peak"])


def _pci(properties: Any) -> Optional[str]:
    domain, bus, slot = (getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
    if domain is None or bus is None or slot is None:
        return None
    return f"{domain:08X}:{bus:02X}:{slot:02X}.0"


class XpuCounters:
    """The caching allocator of one XPU."""

    def __init__(self, torch: Any, index: int) -> None:
        self._read = torch.xpu.memory_stats
        self._index = index
        self.device = f"xpu:{index}"
        properties = torch.xpu.get_device_properties(index)
        self.info = Device(
            device=self.device,
            kind="xpu",
            name=str(properties.name),
            counters="caching allocator",
            total_bytes=int(properties.total_memory),
            untested=True,
        )

    def read(self) -> Figures:
        """The allocator's counters now. Source: torch.xpu.memory_stats."""
        stats = self._read(self._index)
        return {
            "allocated_bytes": stats.get("allocated_bytes.all.current"),
            "allocated_peak_bytes": stats.get("allocated_bytes.all.peak"),
            "reserved_bytes": stats.get("reserved_bytes.all.current"),
            "reserved_peak_bytes": stats.get("reserved_bytes.all.peak"),
            "active_bytes": stats.get("active_bytes.all.current"),
        }

    def used(self) -> bool:
        """Whether this process has ever reserved memory on the device."""
        return bool(self.read()["reserved_peak_bytes"])


class MpsCounters:
    """Metal's allocator; it keeps no peak."""

    def __init__(self, torch: Any) -> None:
        self._mps = torch.mps
        self.device = "mps:0"
        recommended = getattr(torch.mps, "recommended_max_memory", None)
        self.info = Device(
            device=self.device,
            kind="mps",
            name="Apple GPU",
            counters="driver",
            total_bytes=int(recommended()) if recommended is not None else None,
            untested=True,
        )

    def read(self) -> Figures:
        """Bytes of live tensors and of the driver. Source: torch.mps."""
        return {
            "allocated_bytes": int(self._mps.current_allocated_memory()),
            "reserved_bytes": int(self._mps.driver_allocated_memory()),
        }

    def used(self) -> bool:
        """Whether anything was ever allocated; Metal tells no more."""
        return bool(self.read()["reserved_bytes"])


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class _Unyielding:
    """A small file of the system's, read without letting go of the interpreter's lock.

    Python's own reading lets go of it nine times, and each time a busy program keeps it for 5 ms.
    """

    _BYTES = 256

    def __init__(self, path: str) -> None:
        library = ctypes.PyDLL(None)
        self._open, self._read, self._close = library.open, library.read, library.close
        self._open.argtypes = (ctypes.c_char_p, ctypes.c_int)
        self._read.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
        self._read.restype = ctypes.c_ssize_t
        self._path = os.fsencode(path)
        self._buffer = ctypes.create_string_buffer(self._BYTES)

    def read(self) -> bytes:
        """Its beginning; empty where it cannot be read."""
        file = self._open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        if file < 0:
            return b""
        size = self._read(file, self._buffer, self._BYTES)
        self._close(file)
        return self._buffer.raw[: max(0, size)]


class HostCounters:
    """The process's own heap: glibc's `mallinfo2`, or the resident set alone where that says nothing."""

    device = "host"

    def __init__(self) -> None:
        self._mallinfo2 = self._find()
        self._statm = _Unyielding("/proc/self/statm")
        self._peak = 0
        self.info = Device(
            device=self.device,
            kind="host",
            name="host memory",
            counters="mallinfo2" if self._mallinfo2 else "rss",
            total_bytes=_physical_bytes(),
        )

    @staticmethod
    def _find() -> Any:
        try:
            function = ctypes.CDLL(None).mallinfo2
        except (OSError, AttributeError):  # not glibc, or older than 2.33
            return None
        function.restype = _Mallinfo2
        heap = function()
        # Under jemalloc or tcmalloc glibc's heap is empty: Python alone has more than this.
        return function if heap.uordblks + heap.hblkhd > 1 << 20 else None

    def read(self) -> Figures:
        """Heap and resident bytes now; the peak is of what was read so far."""
        words = self._statm.read().split()
        rss = int(words[1]) * _PAGE_BYTES if len(words) > 1 else None
        if self._mallinfo2 is None:
            return {"rss_bytes": rss}
        heap = self._mallinfo2()
        allocated = heap.uordblks + heap.hblkhd
        self._peak = max(self._peak, allocated)
        return {
            "allocated_bytes": allocated,
            "allocated_peak_bytes": self._peak,
            "reserved_bytes": heap.arena + heap.hblkhd,
            "rss_bytes": rss,
        }

    def used(self) -> bool:
        """Always: every process has a heap."""
        return True


def _physical_bytes() -> Optional[int]:
    try:
        return os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    except (ValueError, OSError):
        return None


class Backends:
    """The devices in use, found again as the program begins to use more."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._host = HostCounters()
        self._known: dict[str, Any] = {}

    def refresh(self) -> list[Any]:
        """Counters of every device in use; of the host where there is none."""
        for counters in self._accelerators():
            if counters.device not in self._known and counters.used():
                self._known[counters.device] = counters
        return list(self._known.values()) or [self._host]

    @property
    def initialized(self) -> bool:
        """Whether there is an accelerator that the program may begin to use at any moment."""
        torch = self._torch
        return bool(
            torch.cuda.is_initialized()
            or (hasattr(torch, "xpu") and torch.xpu.is_initialized())
            or (sys.platform == "darwin" and torch.backends.mps.is_available())
        )

    def _accelerators(self) -> list[Any]:
        torch, known = self._torch, self._known
        found: list[Any] = []
        if torch.cuda.is_initialized():
            for index in range(torch.cuda.device_count()):
                if f"cuda:{index}" not in known:
                    found.append(self._cached(CudaCounters, torch, index))
        if hasattr(torch, "xpu") and torch.xpu.is_available() and torch.xpu.is_initialized():
            for index in range(torch.xpu.device_count()):
                if f"xpu:{index}" not in known:
                    found.append(self._cached(XpuCounters, torch, index))
        if sys.platform == "darwin" and torch.backends.mps.is_available() and "mps:0" not in known:
            found.append(self._cached(MpsCounters, torch))
        return found

    def _cached(self, kind: Any, *arguments: Any) -> Any:
        key = (kind, *arguments[1:])
        store: dict[Any, Any] = self.__dict__.setdefault("_candidates", {})
        if key not in store:
            store[key] = kind(*arguments)
        return store[key]
