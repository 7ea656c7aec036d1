"""An allocator's memory as torch's memory_snapshot tells it, and an allocator that begins with such memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional

from .blocks import FREE, LIVE, PENDING, UNMAPPED, Block, FreeBlocks, Segment
from .caching import NO_POOL, CachingAllocator, Place
from .settings import Settings

#: Torch's words for the states of a block.
_STATES = {"inactive": FREE, "active_allocated": LIVE}


class Piece(NamedTuple):
    """A block of a snapshot; `asked_bytes` is 0 where it is free or not known."""

    size_bytes: int
    state: int
    asked_bytes: int = 0


class Stretch(NamedTuple):
    """What a snapshot calls a segment: memory without a gap, of an expandable one only a part."""

    address: int
    small: bool
    stream: int
    pieces: tuple[Piece, ...]
    expandable: bool = False
    pool_id: tuple[int, int] = NO_POOL

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return sum(piece.size_bytes for piece in self.pieces)


def stretches_from(segments: Iterable[Mapping[str, Any]]) -> list[Stretch]:
    """Those of torch's memory_snapshot, whose segments must all be of one device."""
    found = []
    for segment in segments:
        pieces = tuple(
            Piece(block["size"], state, 0 if state == FREE else block.get("requested_size", 0))
            for block in segment["blocks"]
            for state in (_STATES.get(block["state"], PENDING),)
        )
        small, expandable = segment["segment_type"] == "small", bool(segment.get("is_expandable"))
        first, second = segment.get("segment_pool_id") or NO_POOL
        found.append(Stretch(segment["address"], small, segment["stream"], pieces, expandable, (first, second)))
    return found


def stretches(allocator: CachingAllocator) -> list[Stretch]:
    """What torch's memory_snapshot would tell, in the order of addresses."""
    return [stretch for address in sorted(allocator.segments) for stretch in stretches_of(allocator.segments[address])]


def stretches_of(segment: Segment) -> list[Stretch]:
    """The parts of one segment that have memory."""
    found, run = [], []
    block = segment.first
    while block is not None:
        if block.state != UNMAPPED:
            run.append(block)
        elif run:
            found.append(_stretch(run))
            run = []
        block = block.next
    return [*found, _stretch(run)] if run else found


def _stretch(run: list[Block]) -> Stretch:
    first = run[0]
    pool = first.home.pool
    pieces = tuple(
        Piece(block.size_bytes, block.state, 0 if block.state == FREE else block.asked_bytes) for block in run
    )
    pool_id = NO_POOL if pool.private is None else pool.private.identity
    return Stretch(first.address, pool.small, first.stream, pieces, first.segment.expandable, pool_id)


def restored(
    found: Iterable[Stretch],
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
    *,
    capacity_bytes: Optional[int] = None,
    allowed_bytes: Optional[int] = None,
    total_bytes: Optional[int] = None,
    by_age: bool = True,
    place: Optional[Place] = None,
) -> tuple[CachingAllocator, dict[int, Block]]:
    """An allocator that holds what a snapshot tells, its peaks being what it holds, and its live blocks by address.

    `found` are the segments from the oldest to the newest.

    A snapshot does not tell to which range of addresses an expandable segment belongs: those of one pool and stream are
    taken to be parts of one range, the first at its beginning, as far as a range reaches. So pages that went back to
    the device from before the first of them are not asked for again there.
    """
    allocator = CachingAllocator(
        settings,
        capacity_bytes=capacity_bytes,
        allowed_bytes=allowed_bytes,
        total_bytes=total_bytes,
        by_age=by_age,
        place=place,
    )
    live: dict[int, Block] = {}
    ranges: dict[FreeBlocks, tuple[Segment, Block]] = {}
    found = list(found)
    native = [stretch for stretch in found if not stretch.expandable]
    for stretch in (*native, *sorted(stretch for stretch in found if stretch.expandable)):
        home = allocator.home(stretch.stream, small=stretch.small, pool_id=stretch.pool_id)
        reach = allocator.range_bytes(small=stretch.small)
        begun = ranges.get(home) if stretch.expandable else None
        if begun is not None and stretch.address + stretch.size_bytes > begun[0].address + reach:
            _gap(home, *begun, min(begun[0].address + reach, stretch.address))
            begun = None
        if begun is not None:
            segment, last = begun
            last = _gap(home, segment, last, stretch.address)
        else:
            segment = Segment(stretch.address, stretch.size_bytes, expandable=stretch.expandable)
            allocator.adopt(segment)
            last = None
        last = _fill(allocator, home, segment, last, stretch, live)
        if stretch.expandable:
            ranges[home] = segment, last
    for home, (segment, last) in ranges.items():
        _gap(home, segment, last, segment.address + allocator.range_bytes(small=home.pool.small))
    allocator.reset_peaks()
    return allocator, live


def _fill(
    allocator: CachingAllocator,
    home: FreeBlocks,
    segment: Segment,
    last: Optional[Block],
    stretch: Stretch,
    live: dict[int, Block],
) -> Block:
    address = stretch.address
    for piece in stretch.pieces:
        block = Block(home, segment, address, piece.size_bytes, piece.state)
        block.asked_bytes = piece.asked_bytes
        if last is None:
            segment.first = block
        else:
            block.put_after(last)
        if piece.state == FREE:
            home.add(block)
        else:
            live[address] = block
        allocator.count(block)
        address += piece.size_bytes
        last = block
    assert last is not None
    return last


def _gap(home: FreeBlocks, segment: Segment, last: Block, end: int) -> Block:
    """Addresses without memory up to `end`, if there are any."""
    address = last.address + last.size_bytes
    if address >= end:
        return last
    block = Block(home, segment, address, end - address, UNMAPPED)
    block.put_after(last)
    home.add_unmapped(block)
    segment.size_bytes = end - segment.address
    return block
