"""One device's segments and what lies in them, read from the agent's message; and an allocator that holds the same."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Optional

from memtui.analysis.allocator.blocks import FREE, LIVE, PENDING
from memtui.analysis.allocator.caching import DEFAULT_STREAM, NO_POOL, CachingAllocator
from memtui.analysis.allocator.settings import UNIT_BYTES, settings_from
from memtui.analysis.allocator.snapshot import Piece as PlainPiece
from memtui.analysis.allocator.snapshot import Stretch, restored
from memtui.wire.frames import FREE_PIECE, PENDING_PIECE, Segments

State = Literal["live", "free", "pending"]
_STATES: dict[State, int] = {"live": LIVE, "free": FREE, "pending": PENDING}
_PRIVATE_POOL = (0, 1)


@dataclass(frozen=True)
class Limits:
    """What decides beside the blocks; what is not known is None. `by_age` is the rule of the program's torch."""

    capacity_bytes: Optional[int] = None  # what the device can give this allocator, with what it has already
    allowed_bytes: Optional[int] = None
    total_bytes: Optional[int] = None
    by_age: bool = True

    @property
    def most_bytes(self) -> Optional[int]:
        """What this allocator may have of the device in all."""
        known = [each for each in (self.capacity_bytes, self.allowed_bytes) if each is not None]
        return min(known, default=None)


@dataclass(frozen=True)
class Piece:
    """A block, or several of one kind side by side. `stuck_bytes` of a free one cannot go back to the device.

    `pinning` is how many of its blocks keep free memory of their segment from going back.
    """

    address: int
    size_bytes: int
    state: State
    category: str = ""
    blocks: int = 1
    name: str = ""
    stuck_bytes: int = 0
    pinning: int = 0


@dataclass(frozen=True)
class Segment:
    """Memory without a gap; of an expandable segment only a part."""

    address: int
    size_bytes: int
    stream: int  # numbered, 0 is the default one
    small: bool
    expandable: bool
    private: bool  # of a CUDA graph or a MemPool
    pieces: tuple[Piece, ...]

    def bytes_of(self, state: State) -> int:
        """How much of it is live, free or pending."""
        return sum(piece.size_bytes for piece in self.pieces if piece.state == state)

    @cached_property
    def stuck_bytes(self) -> int:
        """Free, and cannot go back to the device."""
        return sum(piece.stuck_bytes for piece in self.pieces)

    @cached_property
    def pinning(self) -> int:
        """How many blocks pin that."""
        return sum(piece.pinning for piece in self.pieces)


def read_segments(told: Segments) -> tuple[Segment, ...]:
    """The segments in the order of addresses; nothing is said yet of what is stuck. Raises ValueError for nonsense."""
    found, place, end = [], 0, 0
    for row in told.segments:
        if len(row) < 7 or row[6] < 0 or place + row[6] > len(told.pieces):
            raise ValueError("segments and pieces do not fit together")
        address, size, stream, small, expandable, private, count = row[:7]
        start = told.base_address + address * UNIT_BYTES
        pieces = tuple(_pieces(told, start, told.pieces[place : place + count]))
        place += count
        if not pieces or sum(piece.size_bytes for piece in pieces) != size * UNIT_BYTES:
            raise ValueError("segments and pieces do not fit together")
        if start < end or min(piece.size_bytes for piece in pieces) <= 0:
            raise ValueError("segments lie upon each other")
        end = start + size * UNIT_BYTES
        flags = bool(small), bool(expandable), bool(private)
        found.append(Segment(start, size * UNIT_BYTES, stream, *flags, pieces))
    return tuple(found)


def _pieces(told: Segments, address: int, rows: tuple[tuple[int, ...], ...]) -> Iterator[Piece]:
    for size, kind, blocks, name in rows:
        size_bytes = size * UNIT_BYTES
        if kind == FREE_PIECE:
            yield Piece(address, size_bytes, "free")
        elif kind == PENDING_PIECE:
            yield Piece(address, size_bytes, "pending", blocks=blocks)
        else:
            category = told.categories[kind] if 0 <= kind < len(told.categories) else "unattributed"
            known = told.names[name] if 0 <= name < len(told.names) else ""
            yield Piece(address, size_bytes, "live", category, blocks, known)
        address += size_bytes


def allocator_of(told: Segments, found: tuple[Segment, ...], limits: Limits) -> CachingAllocator:
    """An allocator that holds the same.

    Blocks that were told as one are one here too: only what is free decides what would fit.
    """
    stretches = [
        Stretch(
            segment.address,
            segment.small,
            segment.stream,
            tuple(PlainPiece(piece.size_bytes, _STATES[piece.state]) for piece in segment.pieces),
            segment.expandable,
            _PRIVATE_POOL if segment.private else NO_POOL,
        )
        for segment in found
    ]
    allocator, _ = restored(
        stretches,
        settings_from(told.settings),
        capacity_bytes=limits.capacity_bytes,
        allowed_bytes=limits.allowed_bytes,
        total_bytes=limits.total_bytes,
        by_age=limits.by_age,
    )
    return allocator


def usual_stream(found: tuple[Segment, ...]) -> int:
    """The stream that most memory was allocated for: the one that trains."""
    sizes: dict[int, int] = {}
    for segment in found:
        if not segment.private:
            sizes[segment.stream] = sizes.get(segment.stream, 0) + segment.size_bytes
    return max(sizes, key=lambda stream: (sizes[stream], -stream), default=DEFAULT_STREAM)


def with_pins(found: tuple[Segment, ...], released: CachingAllocator) -> tuple[Segment, ...]:
    """The same with what is stuck and what pins it; `released` has given back all that it can.

    Every block of an ordinary segment keeps all of it; of an expandable one, whose free pages go back, only those keep
    something that lie beside a page that is partly theirs.
    """
    left = sorted((block.address, block.size_bytes) for block in released.blocks() if block.state == FREE)
    return tuple(segment if segment.private else _pinned(segment, left) for segment in found)


def _pinned(segment: Segment, left: list[tuple[int, int]]) -> Segment:
    stuck = [_overlap(piece, left) if piece.state == "free" else 0 for piece in segment.pieces]
    if not any(stuck):
        return segment
    pieces = []
    for place, piece in enumerate(segment.pieces):
        pinning = 0
        if piece.state != "free":
            beside = sum(stuck[other] > 0 for other in (place - 1, place + 1) if 0 <= other < len(stuck))
            pinning = min(piece.blocks, beside) if segment.expandable else piece.blocks
        pieces.append(replace(piece, stuck_bytes=stuck[place], pinning=pinning))
    return replace(segment, pieces=tuple(pieces))


def _overlap(piece: Piece, left: list[tuple[int, int]]) -> int:
    end, total = piece.address + piece.size_bytes, 0
    place = max(0, bisect_left(left, (piece.address,)) - 1)
    while place < len(left) and left[place][0] < end:
        address, size = left[place]
        total += max(0, min(end, address + size) - max(piece.address, address))
        place += 1
    return total
