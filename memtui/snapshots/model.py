"""What a snapshot holds: devices, their segments and blocks, and the events that were recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

from memtui.analysis.text import clean
from memtui.analysis.units import size

from .errors import SnapshotError
from .reading import load

#: Torch's words for the states of a block, the older ones included.
LIVE = "active_allocated"
PENDING = "active_awaiting_free"
FREE = "inactive"
_STATES = {LIVE: LIVE, FREE: FREE, PENDING: PENDING, "active_pending_free": PENDING}
_LARGEST = 1 << 63
_MOST_DEVICES = 1024

Event = Mapping[str, Any]
Frames = Sequence[Mapping[str, Any]]


class Block(NamedTuple):
    """A piece of a segment; `requested_bytes` is what the program asked for, None where it is not told."""

    address: int
    size_bytes: int
    state: str
    requested_bytes: Optional[int]
    frames: Frames


class Segment(NamedTuple):
    """Memory that the allocator has from the driver; of an expandable one a stretch without a gap."""

    address: int
    size_bytes: int
    stream: int
    kind: str  # "small", "large", "" where not told
    pool_id: tuple[int, int]
    expandable: bool
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Device:
    """One device's memory when the snapshot was taken, and the events before, from the oldest that was kept."""

    index: int
    segments: tuple[Segment, ...]
    trace: Sequence[Event]

    @property
    def name(self) -> str:
        """As torch writes it, "cuda:0"."""
        return f"cuda:{self.index}"

    @property
    def reserved_bytes(self) -> int:
        """All segments."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def allocated_bytes(self) -> int:
        """Blocks that were live."""
        return self.state_bytes(LIVE)

    @property
    def largest_free_bytes(self) -> int:
        """The largest free block, 0 where there is none."""
        return max((block.size_bytes for block in self.blocks() if block.state == FREE), default=0)

    @property
    def requested_bytes(self) -> Optional[int]:
        """What the program asked for in its live blocks; None where one does not tell."""
        asked = [block.requested_bytes for block in self.blocks() if block.state == LIVE]
        told = [each for each in asked if each is not None]
        return sum(told) if len(told) == len(asked) else None

    def state_bytes(self, state: str) -> int:
        """The blocks in one state."""
        return sum(block.size_bytes for block in self.blocks() if block.state == state)

    def blocks(self) -> Iterator[Block]:
        """Those of all segments."""
        for segment in self.segments:
            yield from segment.blocks


@dataclass(frozen=True)
class Snapshot:
    """A file's contents; `notices` are what is odd about it, a line each."""

    path: str
    devices: tuple[Device, ...]
    settings: Mapping[str, Any]
    notices: tuple[str, ...]

    def device(self, name: Optional[str] = None) -> Device:
        """The named one, or that with most memory; raises SnapshotError where it is not there."""
        if name is None:
            return max(self.devices, key=lambda device: (device.reserved_bytes, len(device.trace)))
        for device in self.devices:
            if device.name == name:
                return device
        names = " or ".join(device.name for device in self.devices)
        raise SnapshotError(f"{name} is not in {clean(os.path.basename(self.path), 100)}: --device {names}")


def open_snapshot(path: str, available_bytes: Optional[int] = None) -> Snapshot:
    """Reads a file; `available_bytes` as in `reading.load`. Raises SnapshotError."""
    return snapshot_from(load(path, available_bytes), path)


def snapshot_from(raw: Any, path: str) -> Snapshot:
    """What torch's dict holds, or the bare list of segments that torch 1 gave; raises SnapshotError.

    `path` is what the dict is called in messages.
    """
    return _Reader(clean(path, 200)).snapshot(raw, path)


class _Reader:
    """Takes a dict apart, and says in words what is not as torch writes it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._notices: list[str] = []

    def snapshot(self, raw: Any, path: str) -> Snapshot:
        if isinstance(raw, list):
            self._notices.append("a bare list of segments: no events were recorded with it")
            raw = {"segments": raw, "device_traces": []}
        if not isinstance(raw, dict) or "segments" not in raw:
            raise SnapshotError(f"{self._name} is a pickle, and no memory snapshot: it has no segments")
        segments = self._segments(self._list(raw["segments"], "segments"))
        traces = [self._list(each, "a device's trace") for each in self._list(raw.get("device_traces"), "traces")]
        if len(traces) > _MOST_DEVICES:
            raise self._odd(f"it has traces of {len(traces):,} devices")
        used = sorted(set(segments) | {index for index, trace in enumerate(traces) if trace})
        if not used:
            raise SnapshotError(f"{self._name} is a memory snapshot of no memory: nothing was allocated")
        devices = tuple(
            Device(index, tuple(segments.get(index, ())), traces[index] if index < len(traces) else ())
            for index in used
        )
        for device in devices:
            if not device.trace:
                self._notices.append(
                    f"{device.name}: no events: call torch.cuda.memory._record_memory_history() before what to look at"
                )
        settings = raw.get("allocator_settings")
        return Snapshot(path, devices, settings if isinstance(settings, dict) else {}, tuple(self._notices))

    def _segments(self, raw: list[Any]) -> dict[int, list[Segment]]:
        found: dict[int, list[Segment]] = {}
        for each in raw:
            if not isinstance(each, dict):
                raise self._odd("a segment is no dict")
            index = self._number(each, "device", "a segment", default=0)
            segment = self._segment(each)
            self._compare(each, segment, index)
            found.setdefault(index, []).append(segment)
        for segments in found.values():
            segments.sort(key=lambda segment: segment.address)
        return found

    def _segment(self, raw: dict[str, Any]) -> Segment:
        address = self._number(raw, "address", "a segment", default=0)
        blocks = tuple(self._blocks(self._list(raw.get("blocks"), "a segment's blocks"), address))
        pool = raw.get("segment_pool_id")
        pool_id = (pool[0], pool[1]) if isinstance(pool, tuple) and len(pool) == 2 else (0, 0)
        return Segment(
            address,
            self._number(raw, "total_size", "a segment"),
            self._number(raw, "stream", "a segment", default=0),
            self._word(raw, "segment_type"),
            pool_id,
            bool(raw.get("is_expandable")),
            blocks,
        )

    def _blocks(self, raw: list[Any], address: int) -> Iterator[Block]:
        for each in raw:
            if not isinstance(each, dict):
                raise self._odd("a block is no dict")
            state = _STATES.get(self._word(each, "state"))
            if state is None:
                raise self._odd(f"a block is in a state that is not known, {self._word(each, 'state')!r}")
            size_bytes = self._number(each, "size", "a block")
            # Torch 1.13 and 2.0 tell what was in a block as its history, the present first.
            past = each.get("history")
            latest = past[0] if isinstance(past, list) and past and isinstance(past[0], dict) else {}
            asked = each.get("requested_size", latest.get("real_size"))
            frames = each.get("frames", latest.get("frames"))
            yield Block(
                self._number(each, "address", "a block", default=address),
                size_bytes,
                state,
                asked if isinstance(asked, int) and 0 <= asked < _LARGEST else None,
                frames if isinstance(frames, list) else (),
            )
            address += size_bytes

    def _compare(self, raw: dict[str, Any], segment: Segment, device: int) -> None:
        """Totals that a segment tells beside what its blocks add up to."""
        live = sum(block.size_bytes for block in segment.blocks if block.state == LIVE)
        told = raw.get("allocated_size", live)
        blocks = sum(block.size_bytes for block in segment.blocks)
        where = f"cuda:{device}, the segment at 0x{segment.address:x}"
        if told != live and isinstance(told, int):
            self._notices.append(
                f"{where}: it says {size(told)} allocated ({told:,} B), its blocks add up to {size(live)} ({live:,} B)"
            )
        if blocks != segment.size_bytes:
            self._notices.append(
                f"{where}: it has {size(segment.size_bytes)} ({segment.size_bytes:,} B), its blocks add up to "
                f"{size(blocks)} ({blocks:,} B)"
            )

    def _list(self, value: Any, what: str) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._odd(f"{what} should be a list")
        return value

    def _number(self, raw: dict[str, Any], key: str, what: str, default: Optional[int] = None) -> int:
        value = raw.get(key, default)
        if not isinstance(value, int) or not 0 <= value < _LARGEST:
            raise self._odd(f"{what} has no {key}" if value is None else f"{what}'s {key} is no size or place")
        return value

    def _word(self, raw: dict[str, Any], key: str) -> str:
        value = raw.get(key)
        return clean(value, 60) if isinstance(value, str) else ""

    def _odd(self, what: str) -> SnapshotError:
        return SnapshotError(f"{self._name} is damaged, or no memory snapshot: {what}")
