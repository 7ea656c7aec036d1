"""What torch's snapshot holds as messages, a little at a time: it may be large, and the training wants its lock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from ..wire import codec
from ..wire.histories import HistoryPart

#: Rows of a message, and of what is done in one go.
_ROWS, _SLICE = 128, 64
#: Lists of frames that are known by identity: torch makes one for all that happens to a block.
_LISTS = 2048


class HistoryParts:
    """Takes a snapshot apart; what has been sent is let go of, for it is the process's memory."""

    def __init__(self, snapshot: dict[str, Any]) -> None:
        self._snapshot = snapshot
        self._shapes: dict[tuple[str, ...], tuple[int, int]] = {}  # number, and where in a row its stack is, or 0
        self._frames: dict[int, int] = {}  # by identity: torch makes one dict for all that is on a line
        self._stacks: dict[tuple[int, ...], int] = {}
        self._lists: dict[int, tuple[int, Any]] = {}  # the numbers of the latest stacks
        self._kept: list[Any] = []  # so that no identity comes again
        self._new: tuple[list[tuple[str, ...]], list[tuple[Any, ...]], list[tuple[int, ...]]] = ([], [], [])

    def messages(self) -> Iterator[Optional[bytes]]:
        """Messages, and None wherever the work may be left for a while; raises what a strange snapshot makes it."""
        segments = self._snapshot.pop("segments")
        yield from self._all("segments", -1, itertools.chain.from_iterable(map(self._with_blocks, _emptied(segments))))
        traces = self._snapshot.pop("device_traces")
        for device, trace in enumerate(traces):
            yield from self._all("trace", device, map(self._row, _emptied(trace)))
        rest = {**self._snapshot, "device_traces": len(traces)}
        yield codec.encode(HistoryPart("rest", rows=(rest,)))

    def _all(self, name: str, device: int, rows: Iterator[list[Any]]) -> Iterator[Optional[bytes]]:
        waiting: list[list[Any]] = []
        while True:
            some = list(itertools.islice(rows, _SLICE))
            waiting += some
            if waiting and (len(waiting) >= _ROWS or not some):
                shapes, frames, stacks = map(tuple, self._new)
                for each in self._new:
                    each.clear()
                message = codec.encode(HistoryPart(name, device, shapes, frames, stacks, tuple(waiting)))
                if len(message) > codec.MAX_MESSAGE_BYTES:
                    raise ValueError("a part of it is too large to be sent")
                waiting = []
                yield message
            elif some:
                yield None
            if not some:
                return

    def _with_blocks(self, segment: Mapping[str, Any]) -> Iterator[list[Any]]:
        yield self._row({**segment, "blocks": None})
        yield from map(self._row, segment["blocks"])

    def _row(self, entry: Mapping[str, Any]) -> list[Any]:
        shape, place = self._shape(tuple(entry))
        row = [shape, *entry.values()]
        if place:
            row[place] = self._stack(row[place])
        return row

    def _shape(self, keys: tuple[str, ...]) -> tuple[int, int]:
        found = self._shapes.get(keys)
        if found is None:
            place = 1 + keys.index("frames") if "frames" in keys else 0
            found = self._shapes[keys] = len(self._shapes), place
            self._new[0].append(keys)
        return found

    def _stack(self, frames: Any) -> int:
        if not frames:
            return -1
        known = self._lists.get(id(frames))
        if known is not None:
            return known[0]
        if len(self._lists) >= _LISTS:
            self._lists.clear()
        number = self._number(frames)
        self._lists[id(frames)] = number, frames
        return number

    def _number(self, frames: Any) -> int:
        numbers = tuple(map(self._frames.get, map(id, frames)))
        if None in numbers:
            numbers = tuple(map(self._frame, frames))
        number = self._stacks.get(numbers)  # type: ignore[arg-type]  # each is known now
        if number is None:
            number = self._stacks[numbers] = len(self._stacks)  # type: ignore[index]
            self._new[2].append(numbers)  # type: ignore[arg-type]
        return number

    def _frame(self, frame: Mapping[str, Any]) -> int:
        number = self._frames.get(id(frame))
        if number is None:
            number = self._frames[id(frame)] = len(self._kept)
            self._kept.append(frame)
            self._new[1].append((self._shape(tuple(frame))[0], *frame.values()))
        return number


def _emptied(items: list[Any]) -> Iterator[Any]:
    """The items of a list, each of which is taken out of it."""
    for place, item in enumerate(items):
        items[place] = None
        yield item
