"""What a recorded step began with in the allocator, and what it asked for: enough to play the step again elsewhere.

Plain data, from torch's snapshot and history; no torch is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional, Protocol

from ..wire.frames import RecordedHeap

#: Every address and every size in the allocator is a multiple of it.
_UNIT = 512
#: Of an allocation in a private pool: it is not played again.
PRIVATE = -1
_NO_POOL = (0, 0)


class Placed(Protocol):
    """A block of the step: bytes asked for, None where that is unknown, and where it was put."""

    address: int
    asked: Optional[int]
    stream: int


class Course:
    """What happened between a step's allocations and frees, noted as the history is followed."""

    def __init__(self) -> None:
        self._freed: dict[int, tuple[int, int]] = {}  # address -> number of the block, event that freed it
        self._emptied: list[int] = []
        self._late: list[tuple[int, int]] = []

    def freed(self, address: int, number: int, event: int) -> None:
        """The program has freed a block."""
        self._freed[address] = number, event

    def other(self, action: str, address: int, event: int) -> None:
        """Anything else of the history, before the event of this number."""
        if action in {"segment_free", "segment_unmap"}:
            if not self._emptied or self._emptied[-1] != event:
                self._emptied.append(event)
        elif action == "free_completed":
            number, requested = self._freed.pop(address, (-1, event))
            if event > requested + 1:
                self._late.append((number, event))

    def heap(
        self,
        segments: Iterable[Mapping[str, Any]],
        blocks: Iterable[Placed],
        settings: Mapping[str, Any],
    ) -> RecordedHeap:
        """The message's part; `segments` are those of the beginning, on one device."""
        blocks = list(blocks)
        held = sorted(segments, key=lambda segment: int(segment["address"]))
        base = min((held[0]["address"] if held else 1 << 62, *(block.address for block in blocks)), default=0)
        streams: dict[int, int] = {0: 0}
        rows, pending = [], []
        for segment in held:
            stream = streams.setdefault(segment.get("stream", 0), len(streams))
            private = tuple(segment.get("segment_pool_id") or _NO_POOL) != _NO_POOL
            size = sum(block["size"] for block in segment["blocks"])
            kinds = segment["segment_type"] == "small", bool(segment.get("is_expandable")), private
            rows.append(((segment["address"] - base) // _UNIT, size // _UNIT, stream, *map(int, kinds)))
            address = segment["address"]
            for block in segment["blocks"]:
                if block["state"] not in ("inactive", "active_allocated"):
                    pending.append(((address - base) // _UNIT, block["size"] // _UNIT))
                address += block["size"]
        numbers = [streams.setdefault(block.stream, len(streams)) for block in blocks]
        return RecordedHeap(
            base_address=base,
            segments=tuple(rows),
            pending=tuple(pending),
            places=tuple((block.address - base) // _UNIT for block in blocks),
            asked_bytes=tuple(0 if block.asked is None else block.asked for block in blocks),
            streams=tuple(numbers) if any(numbers) else (),
            late=tuple(self._late),
            emptied=tuple(self._emptied),
            settings=dict(settings),
        )
