"""The caching allocator's blocks, without their history."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any, Optional

from ..wire import codec
from ..wire.frames import BlockSummary, made

_LIVE = "active_allocated"
#: What torch's snapshot is asked with to leave its traces out.
_LEAN = ((0, 0, False),)
_allocated, _device = operator.itemgetter("allocated_size"), operator.itemgetter("device")


class Blocks:
    """One device's blocks at one instant: live ones, and what the free ones say.

    The training's thread waits for the former; the latter is counted when it is asked for, on the agent's.
    """

    def __init__(self, segments: list[dict[str, Any]], requested: Optional[Counter[int]] = None) -> None:
        """Takes in the segments of a snapshot; notes live blocks that were requested with one of these sizes."""
        self.allocated_bytes: int = sum(map(_allocated, segments))
        #: Requested bytes by address of live ones whose requested size was looked for; those are among them of whose
        #: size there are no more than were looked for.
        self.matching: dict[int, int] = {}
        self.alone: set[int] = set()
        #: Bytes by address of the live ones in the pool of a CUDA graph or a MemPool.
        self.private: dict[int, int] = {}
        self._segments = segments  # until they are counted
        self._parts: Optional[tuple[dict[int, int], dict[int, int]]] = None
        self._counts: Optional[dict[str, int]] = None
        self._text = ""
        self._forgotten = False
        for segment in segments:
            states = segment["blocks"]
            if states and "address" in states[0]:
                break
            _number(segment)  # torch 2.2 and older
        for segment in filter(is_private, segments):
            self.private.update(
                (block["address"], block["size"]) for block in segment["blocks"] if block["state"] == _LIVE
            )
        if requested:
            self.matching.update(
                (block["address"], block["requested_size"])
                for segment in segments
                for block in segment["blocks"]
                if block["state"] == _LIVE and block.get("requested_size") in requested
            )
            self.pick(requested, Counter(self.matching.values()))

    def pick(self, requested: Counter[int], live: Counter[int]) -> None:
        """Tells those that are `alone`, where so many are live of each size, also on other devices."""
        self.alone = {address for address, size in self.matching.items() if live[size] <= requested[size]}

    @property
    def live(self) -> dict[int, int]:
        """Bytes by address of the live ones. Once the free ones are counted, only where they have been split."""
        parts = self._parts
        if parts is not None:
            return {**parts[0], **parts[1]}
        return {
            block["address"]: block["size"]
            for segment in self._segments
            for block in segment["blocks"]
            if block["state"] == _LIVE
        }

    def beside(self, kept: dict[int, int], filled: dict[int, int]) -> dict[int, int]:
        """Bytes by address of the live ones that are not `kept`; `filled` has the kept bytes in each segment.

        Most of a training's segments hold nothing but what it keeps: their blocks are not looked at one by one.
        """
        return {
            block["address"]: block["size"]
            for segment in self._segments
            if segment["allocated_size"] != filled.get(segment["address"], 0)
            for block in segment["blocks"]
            if block["address"] not in kept and block["state"] == _LIVE
        }

    def split(self, kept: dict[int, int], rest: dict[int, int]) -> None:
        """What is live is these two, none of which will be changed: from now on it need not be read again."""
        self._parts = kept, rest

    def bytes_in_segments(self, kept: dict[int, int]) -> dict[int, int]:
        """By the address of each segment that has any: bytes of the blocks in it that are `kept`."""
        found = {
            segment["address"]: sum(kept.get(block["address"], 0) for block in segment["blocks"])
            for segment in self._segments
        }
        return {address: size for address, size in found.items() if size}

    @property
    def segments(self) -> Optional[list[dict[str, Any]]]:
        """As torch told them; None once they are counted or forgotten."""
        found = self._segments
        return None if self._counts is not None or self._forgotten else found

    def forget(self) -> None:
        """They need not be counted any more, and are let go of."""
        if self._counts is None:
            self._forgotten, self._segments = True, []

    @property
    def forgotten(self) -> bool:
        """Whether they cannot be counted."""
        return self._forgotten

    def summary(self, age_ns: int) -> BlockSummary:
        """The fragmentation figures of a frame that is `age_ns` younger than these blocks, which are not forgotten."""
        return made(BlockSummary, {"age_ns": age_ns, **self.counts()})

    def counts(self) -> dict[str, int]:
        """These figures but for the age; not to be changed."""
        if self._counts is None:
            self._counts = _count(self._segments)
            self._segments = []
        return self._counts

    def text(self, age_ns: int) -> codec.Text:
        """The summary, for a frame."""
        if not self._text:
            self._text = codec.rest_of(self.counts())
        return codec.aged(age_ns, self._text)


def is_private(segment: dict[str, Any]) -> bool:
    """Whether a segment belongs to the pool of a CUDA graph or a MemPool."""
    pool = segment.get("segment_pool_id")
    return pool is not None and bool(pool[0] or pool[1])


def _number(segment: dict[str, Any]) -> None:
    address = segment["address"]
    for block in segment["blocks"]:
        block["address"] = address
        address += block["size"]


def _count(segments: list[dict[str, Any]]) -> dict[str, int]:
    counts = dict.fromkeys(
        (
            *("num_segments", "num_blocks", "largest_free_block_bytes", "reusable_cache_bytes"),
            *("inactive_split_bytes", "private_pool_idle_bytes", "active_pending_free_bytes", "num_pinned_segments"),
        ),
        0,
    )
    for segment in segments:
        blocks = segment["blocks"]
        counts["num_segments"] += 1
        counts["num_blocks"] += len(blocks)
        active = segment["active_size"]
        allocated, free = segment["allocated_size"], segment["total_size"] - active
        pending = active - allocated  # freed by the program, waiting on another stream
        counts["active_pending_free_bytes"] += pending
        if not free:
            continue
        if is_private(segment):
            counts["private_pool_idle_bytes"] += free
            continue
        if free > counts["largest_free_block_bytes"]:
            largest = max(block["size"] for block in blocks if block["state"] == "inactive")
            counts["largest_free_block_bytes"] = max(counts["largest_free_block_bytes"], largest)
        if active:
            counts["num_pinned_segments"] += 1
            counts["inactive_split_bytes"] += free
        else:
            counts["reusable_cache_bytes"] += free
    return counts


class BlockReader:
    """Reads all devices' blocks; refuses while the program records a history of its own.

    A snapshot leaves an entry in that history, which is the program's.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._call: Any = None
        self._unreadable = self._lean = False
        self.settings: dict[str, Any] = {}  # torch's own, as of when they were read
        self.requested: Counter[int] = Counter()  # how many blocks are looked for by their requested bytes

    def _choose(self) -> Any:
        snapshot = self._torch._C._cuda_memorySnapshot
        # Without traces where torch can leave them out; its argument changed twice.
        for arguments in (_LEAN, (None,), ()):
            try:
                snapshot(*arguments)
            except (TypeError, RuntimeError):
                continue
            self._lean = arguments == _LEAN
            return lambda: snapshot(*arguments)
        self._unreadable = True  # cudaMallocAsync has no blocks
        return None

    def recording(self) -> bool:
        """Whether the program records a memory history. Only after CUDA is initialised: torch crashes before."""
        enabled = getattr(self._torch._C, "_cuda_isHistoryEnabled", None)
        try:
            return bool(enabled()) if enabled is not None else False
        except RuntimeError:
            self._unreadable = True  # cudaMallocAsync has no history, and no blocks
            return False

    def read(self, *, own: bool = False) -> dict[str, Blocks] | None:
        """Blocks by device; None where they cannot be had or reading them would leave a trace in the program's history.

        `own`: a history that is switched on is the agent's.
        """
        if self._unreadable or (not own and self.recording()):
            return None
        snapshot = self.snapshot()
        if snapshot is None:
            return None
        self.settings = snapshot.get("allocator_settings") or {}
        return _by_device(snapshot["segments"], self.requested)

    @property
    def lean(self) -> bool:
        """Whether torch can leave traces out."""
        self._ready()
        return self._lean

    def _ready(self) -> None:
        if self._call is None and not self._unreadable:
            self._call = self._choose()

    def snapshot(self) -> dict[str, Any] | None:
        """Torch's own snapshot, without traces where it can leave them out; it leaves an entry in a history.

        None where torch has none to give: for as long as a block is live that was recorded with a call site in a file
        whose name is no text, it cannot make one.
        """
        self._ready()
        try:
            return self._call() if self._call is not None else None
        except RuntimeError:
            return None


def device_blocks(segments: list[dict[str, Any]], device: str) -> Blocks:
    """The blocks of one device in a snapshot's segments."""
    return Blocks([segment for segment in segments if f"cuda:{segment['device']}" == device])


def _by_device(segments: list[dict[str, Any]], requested: Counter[int]) -> dict[str, Blocks]:
    indices = set(map(_device, segments))
    if len(indices) == 1:
        return {f"cuda:{indices.pop()}": Blocks(segments, requested)}
    found = {
        f"cuda:{index}": Blocks([segment for segment in segments if segment["device"] == index], requested)
        for index in sorted(indices)
    }
    if requested:
        live = Counter(size for blocks in found.values() for size in blocks.matching.values())
        for blocks in found.values():
            blocks.pick(requested, live)
    return found
