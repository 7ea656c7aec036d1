"""The allocator's segments and what lies in them, from what was noted on the training's thread: on the agent's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ..wire.frames import CATEGORIES, FREE_PIECE, PENDING_PIECE, Segments
from .tensors import Memory, Taken

#: Pieces of a message at most.
MOST_PIECES = 4_096
_UNIT = 512
_STATES = {"active_allocated": "", "inactive": "free"}
_NAME_LENGTH = 300
_NO_BLOCKS = "PyTorch tells of no blocks here"
_NOT_READ = (
    "the blocks cannot be read: with cudaMallocAsync there are none, and while the program records a memory history of "
    "its own, reading them would leave entries there"
)


class _Piece(NamedTuple):
    size: int  # bytes
    kind: str  # a category, "free" or "pending"
    blocks: int
    name: str


class _Segment(NamedTuple):
    told: Mapping[str, Any]
    pieces: list[_Piece]


def message(taken: Taken, memory: Memory) -> Segments:
    """The segments of one device, in the order of their addresses."""
    if memory.live is None:
        notice = _NOT_READ if memory.device.startswith("cuda") else _NO_BLOCKS
        return Segments(taken.time_ns, taken.step, taken.phase, memory.device, memory.allocated_bytes, notice=notice)
    owners, names = _categories(taken, memory), _names(taken, memory.live)
    found = [
        _Segment(segment, _pieces(segment, owners, names))
        for segment in sorted(memory.segments, key=lambda segment: int(segment["address"]))
    ]
    found, mixed = _fewer(found, MOST_PIECES)
    kept, left_out = _within(found, MOST_PIECES)
    return _packed(taken, memory, kept, mixed, left_out)


def _categories(taken: Taken, memory: Memory) -> dict[int, str]:
    """By the address of each live block."""
    assert memory.live is not None
    selected, found = taken.selected, dict.fromkeys(memory.live, "unattributed")
    for address, (size, category) in memory.births.items():
        if memory.live.get(address) == size and category in CATEGORIES:
            found[address] = category
    owned: dict[int, str] = {}
    for category, addresses in zip(reversed(selected.categories), reversed(selected.addresses)):
        owned.update(dict.fromkeys(addresses, category))
    for start, named in selected.inside:
        owned.setdefault(start, named.category)
    found.update((address, category) for address, category in owned.items() if address in found)
    return found


def _names(taken: Taken, live: dict[int, int]) -> dict[int, str]:
    names: dict[int, str] = {}
    for start, named in (*taken.selected.first.items(), *taken.selected.inside):
        if start in live:
            names.setdefault(start, named.name[:_NAME_LENGTH])
    return names


def _pieces(segment: Mapping[str, Any], owners: dict[int, str], names: dict[int, str]) -> list[_Piece]:
    """Those side by side that are alike and have no name become one."""
    found: list[_Piece] = []
    address = segment["address"]
    for block in segment["blocks"]:
        size = block["size"]
        kind, name = _STATES.get(block["state"], "pending"), ""
        if not kind:
            kind, name = owners.get(address, "unattributed"), names.get(address, "")
        _append(found, _Piece(size, kind, 1, name))
        address += size
    return found


def _append(found: list[_Piece], piece: _Piece) -> None:
    last = found[-1] if found else None
    if last is not None and last.kind == piece.kind and not (last.name or piece.name):
        found[-1] = _Piece(last.size + piece.size, piece.kind, last.blocks + piece.blocks, "")
    else:
        found.append(piece)


def _fewer(found: list[_Segment], most: int) -> tuple[list[_Segment], int]:
    """Live pieces side by side become one, the smallest segments first, until there are few enough; and their blocks.

    What is free stays as it is: that decides what would fit.
    """
    count, mixed = sum(len(each.pieces) for each in found), 0
    for place in sorted(range(len(found)), key=lambda place: found[place].told["total_size"]):
        if count <= most:
            break
        each = found[place]
        pieces = _mixed(each.pieces)
        if len(pieces) < len(each.pieces):
            mixed += sum(piece.blocks for piece in pieces if piece.kind in CATEGORIES and piece.blocks > 1)
        count -= len(each.pieces) - len(pieces)
        found[place] = _Segment(each.told, pieces)
    return found, mixed


def _mixed(pieces: list[_Piece]) -> list[_Piece]:
    found: list[_Piece] = []
    run: list[_Piece] = []
    for piece in (*pieces, None):
        if piece is not None and piece.kind in CATEGORIES:
            run.append(piece)
            continue
        if run:
            sizes: dict[str, int] = {}
            for each in run:
                sizes[each.kind] = sizes.get(each.kind, 0) + each.size
            most = max(sizes, key=lambda kind: sizes[kind])
            name = run[0].name if len(run) == 1 else ""
            found.append(_Piece(sum(sizes.values()), most, sum(each.blocks for each in run), name))
            run = []
        if piece is not None:
            found.append(piece)
    return found


def _within(found: list[_Segment], most: int) -> tuple[list[_Segment], list[_Segment]]:
    """The largest segments that are told, and those that are left out."""
    kept: set[int] = set()
    room = most
    for place in sorted(range(len(found)), key=lambda place: -found[place].told["total_size"]):
        if len(found[place].pieces) <= room:
            room -= len(found[place].pieces)
            kept.add(place)
    return (
        [each for place, each in enumerate(found) if place in kept],
        [each for place, each in enumerate(found) if place not in kept],
    )


def _packed(taken: Taken, memory: Memory, kept: list[_Segment], mixed: int, left_out: list[_Segment]) -> Segments:
    base = min((each.told["address"] for each in kept), default=0)
    kinds: dict[str, int] = {"free": FREE_PIECE, "pending": PENDING_PIECE}
    categories: list[str] = []
    names: list[str] = []
    streams: dict[int, int] = {0: 0}
    segments, pieces = [], []
    for told, own in kept:
        private: Optional[tuple[int, int]] = told.get("segment_pool_id")
        stream = streams.setdefault(told.get("stream", 0), len(streams))
        flags = told["segment_type"] == "small", told.get("is_expandable"), private is not None and any(private)
        place = (told["address"] - base) // _UNIT, told["total_size"] // _UNIT
        segments.append((*place, stream, *map(int, map(bool, flags)), len(own)))
        for piece in own:
            if piece.kind not in kinds:
                kinds[piece.kind] = len(categories)
                categories.append(piece.kind)
            if piece.name:
                names.append(piece.name)
            name = len(names) - 1 if piece.name else -1
            pieces.append((piece.size // _UNIT, kinds[piece.kind], piece.blocks, name))
    return Segments(
        time_ns=taken.time_ns,
        step=taken.step,
        phase=taken.phase,
        device=memory.device,
        allocated_bytes=memory.allocated_bytes,
        base_address=base,
        segments=tuple(segments),
        pieces=tuple(pieces),
        categories=tuple(categories),
        names=tuple(names),
        settings=taken.settings,
        mixed_blocks=mixed,
        others_count=len(left_out),
        others_bytes=sum(each.told["total_size"] for each in left_out),
        cost_ns=taken.cost_ns,
    )
