"""Recorded histories of allocators, from torch's memory snapshot files, done again by the simulator."""

from __future__ import annotations

import pathlib
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

from memtui.analysis.allocator.blocks import FREE, LIVE
from memtui.analysis.allocator.caching import CachingAllocator
from memtui.analysis.allocator.settings import SMALL_BYTES, Settings, settings_from
from memtui.analysis.allocator.snapshot import Piece, Stretch, restored, stretches_from

Event = dict[str, Any]


class _Plain(pickle.Unpickler):
    """Reads nothing but Python's own plain values."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a snapshot has no use for {module}.{name}")


class History(NamedTuple):
    """One device's: the events, and the segments that there are after them."""

    settings: Settings
    events: list[Event]
    segments: list[Stretch]


class Replayed(NamedTuple):
    """What the simulator comes to; `placed` of `compared` allocations are where torch had them."""

    simulator: CachingAllocator
    asked_rise_bytes: int  # by how much more was asked for, of all that was live at once, than at the beginning
    events: int
    compared: int
    placed: int
    whole: bool


def history(path: pathlib.Path) -> History:
    """Of the file's only device with events."""
    with path.open("rb") as file:
        told = _Plain(file).load()
    ((device, events),) = [(device, events) for device, events in enumerate(told["device_traces"]) if events]
    segments = [segment for segment in told["segments"] if segment["device"] == device]
    return History(settings_from(told["allocator_settings"]), events, stretches_from(segments))


def replayed(told: History, *, by_age: bool) -> Replayed:
    """From nothing where the history begins with the first segment, else from what there was, walked back."""
    whole = sum(event["action"] == "segment_alloc" for event in told.events) == len(told.segments)
    places = [event["addr"] for event in reversed(told.events) if event["action"] == "segment_alloc"]
    begun = [] if whole else _begun(told)
    allocator, live = restored(begun, told.settings, by_age=by_age, place=lambda _: places.pop())
    asked = peak = 0
    compared = placed = 0
    for event in told.events:
        address, action = event["addr"], event["action"]
        if action == "alloc":
            block = allocator.allocate(event["size"], event["stream"])
            live[address] = block
            compared += 1
            placed += block.address == address
            asked += event["size"]
            peak = max(peak, asked)
        elif action == "free_requested":
            asked -= event["size"]
            if address in live:  # else the file has lost its allocation
                allocator.free(live.pop(address))
    return Replayed(allocator, peak, len(told.events), compared, placed, whole)


def _begun(told: History) -> list[Stretch]:
    """The segments as they were before the first event: those of the end, for none came or went.

    What is live at the end tells its size. Of what was freed since only what was asked for is known: it is given the
    bytes up to the next block where these are fewer than would have been cut off, as a free block of large ones is
    never so small.
    """
    held = {address: piece for address, piece in _pieces(told.segments) if piece.state == LIVE}
    for event in reversed(told.events):
        address = event["addr"]
        if event["action"] == "alloc":
            held.pop(address, None)
        elif event["action"] == "free_completed":
            held[address] = Piece(told.settings.rounded(event["size"]), LIVE, event["size"])
    return [_refilled(segment, held) for segment in told.segments]


def _pieces(segments: Sequence[Stretch]) -> list[tuple[int, Piece]]:
    found = []
    for segment in segments:
        address = segment.address
        for piece in segment.pieces:
            found.append((address, piece))
            address += piece.size_bytes
    return found


def _refilled(segment: Stretch, held: dict[int, Piece]) -> Stretch:
    end = segment.address + segment.size_bytes
    inside = sorted((address, piece) for address, piece in held.items() if segment.address <= address < end)
    pieces: list[Piece] = []
    at = segment.address
    for (address, piece), (following, _) in zip(inside, [*inside[1:], (end, None)]):
        if address > at:
            pieces.append(Piece(address - at, FREE))
        rest = following - address - piece.size_bytes
        size = piece.size_bytes + (rest if not segment.small and rest <= SMALL_BYTES else 0)
        pieces.append(piece._replace(size_bytes=size))
        at = address + size
    if at < end:
        pieces.append(Piece(end - at, FREE))
    return segment._replace(pieces=tuple(pieces))
