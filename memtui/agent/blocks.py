"""The caching allocator's blocks, without their history."""

from __future__ import annotations

from typing import Any

from ..wire.frames import BlockSummary


class Blocks:
    """One device's blocks at one instant: live ones by address, and what the free ones say."""

    def __init__(self) -> None:
        self.live: dict[int, int] = {}  # address -> bytes
        self.allocated_bytes = 0
        self.num_segments = 0
        self.num_blocks = 0
        self.largest_free_block_bytes = 0
        self.reusable_cache_bytes = 0
        self.inactive_split_bytes = 0
        self.private_pool_idle_bytes = 0
        self.active_pending_free_bytes = 0
        self.num_pinned_segments = 0

    def add(self, segment: dict[str, Any]) -> None:
        """Counts one segment of a snapshot."""
        address = segment["address"]
        found = self.live
        free = largest = allocated = pending = 0
        states = segment["blocks"]
        for block in states:
            size = block["size"]
            state = block["state"]
            if state == "active_allocated":
                found[address] = size
                allocated += size
            elif state == "inactive":
                free += size
                largest = max(largest, size)
            else:  # freed by the program, waiting on another stream
                pending += size
            address += size
        live = allocated or pending
        self.allocated_bytes += allocated
        self.active_pending_free_bytes += pending
        self.num_segments += 1
        self.num_blocks += len(states)
        if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0):
            self.private_pool_idle_bytes += free
            return
        self.largest_free_block_bytes = max(self.largest_free_block_bytes, largest)
        if live and free:
            self.num_pinned_segments += 1
            self.inactive_split_bytes += free
        else:
            self.reusable_cache_bytes += free

    def summary(self, age_ns: int) -> BlockSummary:
        """The fragmentation figures of a frame that is `age_ns` younger than these blocks."""
        return BlockSummary(
            age_ns=age_ns,
            num_segments=self.num_segments,
            num_blocks=self.num_blocks,
            largest_free_block_bytes=self.largest_free_block_bytes,
            reusable_cache_bytes=self.reusable_cache_bytes,
            inactive_split_bytes=self.inactive_split_bytes,
            private_pool_idle_bytes=self.private_pool_idle_bytes,
            active_pending_free_bytes=self.active_pending_free_bytes,
            num_pinned_segments=self.num_pinned_segments,
        )


class BlockReader:
    """Reads all devices' blocks; refuses while the program records a history of its own.

    A snapshot leaves an entry in that history, which is the program's.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._call: Any = None
        self._unreadable = False

    def _choose(self) -> Any:
        snapshot = self._torch._C._cuda_memorySnapshot
        # Without traces where torch can leave them out; its argument changed twice.
        for arguments in (((0, 0, False),), (None,), ()):
            try:
                snapshot(*arguments)
            except (TypeError, RuntimeError):
                continue
            return lambda: snapshot(*arguments)
        self._unreadable = True  # cudaMallocAsync has no blocks
        return None

    def recording(self) -> bool:
        """Whether the program records a memory history. Only after CUDA is initialised: torch crashes before."""
        enabled = getattr(self._torch._C, "_cuda_isHistoryEnabled", None)
        return bool(enabled()) if enabled is not None else False

    def read(self) -> dict[str, Blocks] | None:
        """Blocks by device; None where they cannot be had or reading them would leave a trace."""
        if self._unreadable or self.recording():
            return None
        if self._call is None:
            self._call = self._choose()
            if self._call is None:
                return None
        return _by_device(self._call()["segments"])


def _by_device(segments: list[dict[str, Any]]) -> dict[str, Blocks]:
    devices: dict[int, Blocks] = {}
    for segment in segments:
        index = segment["device"]
        if index not in devices:
            devices[index] = Blocks()
        devices[index].add(segment)
    return {f"cuda:{index}": blocks for index, blocks in devices.items()}
