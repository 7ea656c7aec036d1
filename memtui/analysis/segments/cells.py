"""A stretch of memory divided into cells of equally many bytes: what most of each is, and what pins it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Optional

from .space import Piece, Segment

CACHE, PINNED, POOL_IDLE, PENDING = "reusable_cache", "inactive_split", "private_pool_idle", "active_pending_free"


class Cell(NamedTuple):
    """`key` is the category of live memory or the state of other; `pin` the category of what pins, "" where nothing."""

    key: str
    pin: str = ""


class Part(NamedTuple):
    """Bytes of one kind side by side."""

    size_bytes: int
    key: str
    pins: bool = False


def parts_of(segment: Segment) -> Iterator[Part]:
    """All of a segment; where a free piece can go back in part, what cannot is at its ends."""
    for piece in segment.pieces:
        if piece.state != "free":
            yield Part(piece.size_bytes, piece.category if piece.state == "live" else PENDING, piece.pinning > 0)
        elif segment.private:
            yield Part(piece.size_bytes, POOL_IDLE)
        else:
            yield from _free(piece)


def _free(piece: Piece) -> Iterator[Part]:
    before = piece.stuck_bytes // 2
    for size, key in (
        (before, PINNED),
        (piece.size_bytes - piece.stuck_bytes, CACHE),
        (piece.stuck_bytes - before, PINNED),
    ):
        if size:
            yield Part(size, key)


def cells_of(segments: Iterable[Segment], count: int) -> list[Optional[Cell]]:
    """`count` cells of all of them, one after the other; None where there is nothing."""
    return divided([part for segment in segments for part in parts_of(segment)], count)


def divided(parts: Sequence[Part], count: int) -> list[Optional[Cell]]:
    """What most of each cell is."""
    total = sum(part.size_bytes for part in parts)
    if not total or count <= 0:
        return [None] * max(0, count)
    found: list[dict[str, int]] = [{} for _ in range(count)]
    pins: list[dict[str, int]] = [{} for _ in range(count)]
    place = 0
    for part in parts:
        # In units of 1 / count bytes a cell is `total` long.
        start, end = place * count, (place + part.size_bytes) * count
        for cell in range(start // total, -(-end // total)):
            size = min(end, (cell + 1) * total) - max(start, cell * total)
            found[cell][part.key] = found[cell].get(part.key, 0) + size
            if part.pins:
                pins[cell][part.key] = pins[cell].get(part.key, 0) + size
        place += part.size_bytes
    return [
        Cell(max(here, key=lambda key: here[key]), max(pin, key=lambda key: pin[key]) if pin else "")
        for here, pin in zip(found, pins)
    ]
