"""What was there at one instant: live blocks with where they came from, and the largest free one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional, Union

from .columns import Columns
from .model import FREE, LIVE, Block, Device, Event, Frames
from .ranges import Ranges
from .stacks import NOWHERE, Stack, Stacks
from .timeline import Timeline

#: The allocator's blocks are multiples of it; a trace tells what was asked for.
_ROUNDING_BYTES = 512
#: Blocks by address: as they were at the end, or the number of the event that ended them.
_Held = dict[int, Union[Block, int]]


class Live(NamedTuple):
    """A live block; `event` is the number of its allocation, the first being 1; None where it was before them all."""

    address: int
    size_bytes: int
    event: Optional[int]
    stack: Stack


@dataclass(frozen=True)
class Instant:
    """Live blocks, the largest first.

    `rest_bytes` is what the timeline has as allocated and is none of them: rounding, and what events that are not there
    would have told. It can be below 0.
    """

    number: int
    allocated_bytes: int
    reserved_bytes: int
    live: tuple[Live, ...]
    rest_bytes: int


def instant(device: Device, course: Timeline, number: int, stacks: Stacks) -> Instant:
    """What was live at an instant, by walking back from the end; some 0.1 µs an event."""
    held: _Held = {block.address: block for block in device.blocks() if block.state == LIVE}
    _walk_back(course.told, number, held, died=course.freed)
    births = _births(course.told, number, set(held))
    found = []
    for address, block in held.items():
        event = births.get(address)
        if event is not None:
            found.append(
                Live(address, course.told.sizes_bytes[event], event + 1, stacks.stack(frames_of(device.trace[event])))
            )
        else:
            # What freed a block has a stack, which says nothing of where it came from.
            stack = stacks.stack(block.frames) if isinstance(block, Block) and block.frames else NOWHERE
            found.append(Live(address, _size_bytes(block, course.told), None, stack))
    found.sort(key=lambda each: (-each.size_bytes, each.address))
    allocated = course.allocated_bytes[number]
    rest = allocated - sum(each.size_bytes for each in found)
    return Instant(number, allocated, course.reserved_bytes[number], tuple(found), rest)


def frames_of(event: Event) -> Frames:
    """An event's stack; none where it was recorded without."""
    frames = event.get("frames")
    return frames if isinstance(frames, list) else ()


def largest_free_bytes(device: Device, course: Timeline, number: int) -> int:
    """The largest free block at an instant, 0 where there was none.

    Before the end it is derived: what lies between blocks whose sizes are rounded up as the allocator does for most.
    """
    if number == course.instants - 1:
        return device.largest_free_bytes
    taken: _Held = {block.address: block for block in device.blocks() if block.state != FREE}
    # A block that waits for another stream is taken until that is done.
    ended = "free_completed" if course.freed == "free_requested" else course.freed
    _walk_back(course.told, number, taken, died=ended)
    blocks = sorted((address, _size_bytes(block, course.told)) for address, block in taken.items())
    largest = place = 0
    for begin, length in _memory_at(device, course.told, number):
        end, free_from = begin + length, begin
        while place < len(blocks) and blocks[place][0] < end:
            address, size_bytes = blocks[place]
            largest = max(largest, address - free_from)
            free_from = max(free_from, address + _rounded(size_bytes))
            place += 1
        largest = max(largest, end - free_from)
    return largest


def _walk_back(told: Columns, number: int, held: _Held, *, died: str) -> None:
    """Takes back what came to be after instant `number`, and puts back what went."""
    born_code, died_code = told.code("alloc"), told.code(died)
    places = range(len(told.actions) - 1, number - 1, -1)
    # Copies are walked through faster than what they are of.
    for action, address, place in zip(told.actions[number:][::-1], told.addresses[number:][::-1], places):
        if action == died_code:
            held[address] = place
        elif action == born_code:
            held.pop(address, None)


def _births(told: Columns, number: int, wanted: set[int]) -> dict[int, int]:
    """The numbers of the events that allocated the blocks at these addresses, where they are there."""
    found: dict[int, int] = {}
    born = told.code("alloc")
    for place, address in zip(range(number - 1, -1, -1), told.addresses[:number][::-1]):
        if address in wanted and told.actions[place] == born:
            found[address] = place
            wanted.discard(address)
            if not wanted:
                break
    return found


def _memory_at(device: Device, told: Columns, number: int) -> list[tuple[int, int]]:
    """(address, length) of the segments at an instant; stretches of expandable ones that touch are one."""
    whole = {segment.address: segment.size_bytes for segment in device.segments if not segment.expandable}
    parts = Ranges((segment.address, segment.size_bytes) for segment in device.segments if segment.expandable)
    names = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")
    places = sorted((place, name) for name in names for place in told.places(name) if place >= number)
    for place, name in reversed(places):
        address, length = told.addresses[place], told.sizes_bytes[place]
        if name == "segment_alloc":
            whole.pop(address, None)
        elif name == "segment_free":
            whole[address] = length
        elif name == "segment_map":
            parts.remove(address, length)
        else:
            parts.add(address, length)
    return sorted([*whole.items(), *parts.stretches()])


def _size_bytes(block: Union[Block, int], told: Columns) -> int:
    return block.size_bytes if isinstance(block, Block) else told.sizes_bytes[block]


def _rounded(size_bytes: int) -> int:
    return -(-size_bytes // _ROUNDING_BYTES) * _ROUNDING_BYTES
