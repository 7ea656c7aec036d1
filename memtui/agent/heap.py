"""Follows the allocator's blocks from one event of its history to the next, for the sizes that it does not tell.

The history has the bytes that were asked for. What a block really takes is decided by the free block it is cut from:
rounded up, or all of it where the rest would be too small to keep. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

_UNIT = 512
_MIB = 1 << 20
_SMALL_SEGMENT = 2 * _MIB
#: Rests up to this are not cut off large blocks.
_LARGE_REST = _MIB


class Rounding:
    """How torch rounds what is asked for, by the settings that its snapshot tells."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        divisions = settings.get("roundup_power2_divisions") or {}
        self._divisions = [int(divisions.get(str(1 << power), 0)) for power in range(16)]
        limit = settings.get("max_split_size")
        self._max_split_bytes = int(limit) if isinstance(limit, int) and limit > 0 else None

    def rounded(self, asked: int) -> int:
        """What a block of `asked` bytes takes at least."""
        if asked < _UNIT:
            return _UNIT
        power = asked.bit_length() - 1
        divisions = self._divisions[min(max(power - 20, 0), 15)]
        if divisions > 1 and asked > _UNIT * divisions:
            part = (1 << power) // divisions
            return -(-asked // part) * part
        return -(-asked // _UNIT) * _UNIT

    def cuts(self, size: int, rest: int, *, small: bool) -> bool:
        """Whether `rest` is cut off the block that `size` bytes are taken from."""
        if small:
            return rest >= _UNIT
        return rest > _LARGE_REST and (self._max_split_bytes is None or size < self._max_split_bytes)


class Heap:
    """One device's blocks. `live` maps addresses to bytes."""

    def __init__(self, segments: list[Mapping[str, Any]], rounding: Rounding) -> None:
        self.live: dict[int, int] = {}
        self._rounding = rounding
        self._pending: dict[int, int] = {}  # freed by the program, waiting on another stream
        self._free: dict[int, int] = {}  # beginning -> end
        self._ends: dict[int, int] = {}  # end -> beginning
        self._small: dict[int, bool] = {}  # by a segment's beginning
        self._segment: dict[int, int] = {}  # block -> the segment it is in; not of expandable ones
        for segment in segments:
            self._add(segment)

    def _add(self, segment: Mapping[str, Any]) -> None:
        start = address = segment["address"]
        expandable = bool(segment.get("is_expandable", False))
        if not expandable:
            self._small[start] = segment["segment_type"] == "small"
        for block in segment["blocks"]:
            size = block["size"]
            if not expandable:
                self._segment[address] = start
            if block["state"] == "active_allocated":
                self.live[address] = size
            elif block["state"] != "inactive":
                self._pending[address] = size
            elif not expandable:
                self._free[address], self._ends[address + size] = address + size, address
            address += size

    def other(self, action: str, address: int, size: int) -> None:
        """An event that changes what is free: by torch's word for it."""
        if action == "free_completed":
            self._complete(address)
        elif action == "segment_alloc":
            self._grow(address, size)
        elif action == "segment_free":
            self._shrink(address)

    def _grow(self, address: int, size: int) -> None:
        self._small[address] = size == _SMALL_SEGMENT
        self._segment[address] = address
        self._free[address], self._ends[address + size] = address + size, address

    def _shrink(self, address: int) -> None:
        end = self._free.pop(address, None)
        if end is not None:
            self._ends.pop(end, None)
            self._segment.pop(address, None)
            self._small.pop(address, None)

    def alloc(self, address: int, asked: int) -> int:
        """A block is allocated; its bytes."""
        size = self._rounding.rounded(asked)
        end = self._free.pop(address, None)
        if end is None:  # in an expandable segment every rest is cut off
            self._segment.pop(address, None)
        else:
            self._ends.pop(end, None)
            whole, segment = end - address, self._segment[address]
            if whole < size or not self._rounding.cuts(size, whole - size, small=self._small[segment]):
                size = whole
            else:
                rest = address + size
                self._free[rest], self._ends[end], self._segment[rest] = end, rest, segment
        self.live[address] = size
        return size

    def free_requested(self, address: int) -> Optional[int]:
        """The program has freed a block; its bytes, None where it is unknown."""
        size = self.live.pop(address, None)
        if size is not None:
            self._pending[address] = size
        return size

    def _complete(self, address: int) -> None:
        # It becomes one with its free neighbours of the same segment.
        size = self._pending.pop(address, None)
        segment = self._segment.get(address)
        if size is None or segment is None:
            return
        start, end = address, address + size
        if end in self._free and self._segment.get(end) == segment:
            del self._segment[end]
            end = self._free.pop(end)
            del self._ends[end]
        before = self._ends.get(start)
        if before is not None and self._segment.get(before) == segment:
            del self._ends[start], self._segment[start]
            start = before
        self._free[start], self._ends[end] = end, start
