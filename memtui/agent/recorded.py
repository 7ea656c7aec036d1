"""Makes the message of a recorded step from what was taken of it: pairs, categories, names, sites, modules.

On the agent's thread, from plain data: no tensor is touched and no torch is called.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Optional

from ..wire.frames import CATEGORIES, BackwardGraph, Mark, RecordedStep
from .communication import communicates
from .heap import Heap, Rounding
from .names import Owners
from .recorded_heap import PRIVATE, Course
from .recording import Boundary, Recording
from .stacks import Running, Sites

#: Events after which the training gets the interpreter, should it wait for it.
_BATCH = 256
_BORN = {
    "startup": "inputs",
    "between": "inputs",
    "forward": "temporaries",  # activations where they are there when backward begins
    "loss": "temporaries",
    "backward": "temporaries",
    "optimizer": "temporaries",
}


@dataclass
class _Block:
    born: int
    size: int
    address: int
    number: int
    frames: Any = ()
    asked: Optional[int] = None
    stream: int = 0
    died: int = -1
    category: str = ""
    name: str = ""

    def alive(self, event: int) -> bool:
        """Whether it is there before this event."""
        return self.born < event and (self.died == -1 or self.died >= event)


def recorded_steps(recording: Recording, torch_folder: str, pause: Callable[[], None]) -> list[RecordedStep]:
    """One message a device that has been used. `pause` is called now and then."""
    return [_Device(recording, index, torch_folder, pause).message() for index in recording.devices]


def let_others_run() -> None:
    """A pause in long work, in which the training gets the interpreter."""
    time.sleep(0.0005)


def with_forward(
    graph: BackwardGraph, recording: Optional[Recording], torch_folder: str, pause: Callable[[], None]
) -> BackwardGraph:
    """The graph, with the forward that made it where that was recorded whole."""
    if recording is None:
        return graph
    try:
        steps = recorded_steps(recording, torch_folder, pause)
    except (LookupError, TypeError, ValueError, AttributeError):  # a history like no known torch's
        return graph
    cost_ns = graph.cost_ns + recording.cost_ns
    return replace(graph, forward=tuple(step for step in steps if step.heap is not None), cost_ns=cost_ns)


def peak_bytes(step: RecordedStep) -> int:
    """The highest sum of the blocks that are there at once."""
    changes = [0] * len(step.event_us)
    for born, died, size, *_ in step.blocks:
        if born >= 0:
            changes[born] += size
        if died >= 0:
            changes[died] -= size
    return max(accumulate([step.before_bytes, *changes]))


def without_sites(step: RecordedStep) -> RecordedStep:
    """The same step, shorter."""
    blocks = tuple((*block[:5], -1, block[6]) for block in step.blocks)
    notices = (*step.notices, "too many call sites to be sent")
    return replace(step, blocks=blocks, sites=(), notices=notices, heap=None)


class _Device:
    """The step on one device."""

    def __init__(self, recording: Recording, index: int, torch_folder: str, pause: Callable[[], None]) -> None:
        self._recording, self._index, self._pause = recording, index, pause
        self._sites, self._running = Sites(torch_folder), Running(recording.submodules)
        self._notices = list(recording.notices)
        traces = recording.after["device_traces"]
        entries = traces[index] if index < len(traces) else []
        self._begun_ns = recording.boundaries[0].time_ns
        self._expected = self._counted(recording.boundaries[-1])
        self._full = len(entries) >= recording.max_entries
        self._entries = self._of_the_step(entries)
        self._lost = 0
        if self._full and self._expected is not None:
            self._lost = max(0, self._expected - _number(self._entries))
        self._times = self._clock()
        self._places = self._place_boundaries()
        self._blocks: list[_Block] = []
        self._changes: list[int] = []  # bytes, by event
        self._course = Course()
        self._after = _live(recording.after["segments"], index)
        self._follow()
        self._check()

    # -- events -----------------------------------------------------------------

    def _counted(self, boundary: Boundary) -> Optional[int]:
        """Events of the step before a boundary, by the allocator's counters."""
        first = self._recording.boundaries[0].counts.get(self._index)
        count = boundary.counts.get(self._index)
        if first is None or count is None or count.events < first.events:
            return None  # the program has set the counters back
        return count.events - first.events

    def _of_the_step(self, entries: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Those after the snapshot of the beginning, which left an entry of its own."""
        if self._full:
            return entries
        for place, entry in enumerate(entries):
            if entry["action"] == "snapshot":
                return entries[place + 1 :]
        if self._expected is None:
            return entries
        place, wanted = len(entries), self._expected
        while place and wanted:
            place -= 1
            wanted -= entries[place]["action"] in _EVENTS
        return entries[place:]

    def _clock(self) -> list[int]:
        """Monotonic nanoseconds of each event, never falling."""
        offset = self._recording.wall_offset_ns
        times = [entry.get("time_us", 0) * 1000 - offset for entry in self._entries if entry["action"] in _EVENTS]
        last = self._recording.boundaries[-1].time_ns
        return [min(max(time, self._begun_ns), last) for time in accumulate(times, max)]

    def _place_boundaries(self) -> list[int]:
        """Before which event each boundary was: by the counters, else by its time, between its neighbours."""
        boundaries, total = self._recording.boundaries, len(self._times)
        counted = [self._counted(boundary) for boundary in boundaries]
        known = [count for count in counted if count is not None]
        if self._expected != total + self._lost or known != sorted(known):
            counted = [0, *[None] * (len(boundaries) - 2), total + self._lost]
        places, at = [], 0
        for number, count in enumerate(counted):
            # At most at the next one that is counted, which for a counted one is itself.
            place = next(later for later in counted[number:] if later is not None) - self._lost
            if count is None:
                place = min(place, bisect.bisect_left(self._times, boundaries[number].time_ns))
            at = max(at, place)
            places.append(at)
        return places

    def _follow(self) -> None:
        """Pairs allocations with frees, and looks at each boundary who owns what is there."""
        heap = self._heap()
        current: dict[int, _Block] = {}
        asked = self._asked_before()
        for address, size in heap.live.items():
            block = current[address] = self._born(-1, address, size, ())
            block.asked, block.stream = asked.get(address, (None, 0))
        event, unknown = 0, 0
        waiting = list(zip(self._places, self._recording.boundaries))
        for entry in self._entries:
            action, address = entry["action"], entry.get("addr", 0)
            if action not in _EVENTS:
                heap.other(action, address, entry.get("size", 0))
                self._course.other(action, address, event)
                continue
            while waiting and waiting[0][0] <= event:
                _own(current, waiting.pop(0)[1].owners)
            change = 0
            before = current.pop(address, None)
            if before is not None:
                before.died = event
                change -= before.size
                self._course.freed(address, before.number, event)
            if action == "alloc":
                unknown += before is not None
                size = heap.alloc(address, entry["size"])
                block = current[address] = self._born(event, address, size, entry.get("frames") or ())
                private = tuple(entry.get("pool_id") or (0, 0)) != (0, 0)
                block.asked, block.stream = PRIVATE if private else entry["size"], entry.get("stream", 0)
                change += size
            else:
                unknown += before is None
                heap.free_requested(address)
            self._changes.append(change)
            event += 1
            if event % _BATCH == 0:
                self._pause()
        for _, boundary in waiting:
            _own(current, boundary.owners)
        if unknown:
            self._notices.append(f"{unknown} events do not fit to a block")

    def _heap(self) -> Heap:
        segments = self._segments_before()
        rounding = Rounding(self._recording.after.get("allocator_settings") or {})
        if not self._full:
            return Heap(segments, rounding)
        # What was there before the first event that is kept: what is there at the end or freed, and was not made since.
        heap, made = Heap([], rounding), set()
        for entry in self._entries:
            if entry["action"] == "alloc":
                made.add(entry["addr"])
            elif entry["action"] == "free_requested" and entry["addr"] not in made:
                heap.live.setdefault(entry["addr"], rounding.rounded(entry["size"]))
        heap.live.update({address: size for address, size in self._after.items() if address not in made})
        return heap

    def _born(self, event: int, address: int, size: int, frames: Any) -> _Block:
        block = _Block(event, size, address, len(self._blocks), frames)
        self._blocks.append(block)
        return block

    def _check(self) -> None:
        """Compares with what the allocator says; what does not fit is said."""
        left = {block.address: block for block in self._blocks if block.died == -1}
        wrong = 0
        for address, block in left.items():
            size = self._after.get(address)
            if size is not None and size != block.size:
                wrong += 1
                if block.born >= 0:
                    self._changes[block.born] += size - block.size
                block.size = size
        strange = len(left.keys() ^ self._after.keys())
        if wrong or strange:
            self._notices.append(f"at the end {wrong} blocks have another size and {strange} are not the allocator's")
        sums = [self._before_bytes(), *self._changes]
        sums = list(accumulate(sums))
        off = 0
        for place, boundary in zip(self._places, self._recording.boundaries):
            count = boundary.counts.get(self._index)
            if count is not None and (place or not self._lost):
                off = max(off, abs(sums[place] - count.allocated_bytes))
        if off:
            self._notices.append(f"at the boundaries up to {off} bytes are not the allocator's")
        if self._full:
            self._notices.append("the step had more events than are kept: sizes of blocks are as asked for, rounded up")

    def _asked_before(self) -> dict[int, tuple[Optional[int], int]]:
        """Bytes asked for and the stream of what was there before, by address."""
        found: dict[int, tuple[Optional[int], int]] = {}
        for segment in self._segments_before():
            private = tuple(segment.get("segment_pool_id") or (0, 0)) != (0, 0)
            address = segment["address"]
            for block in segment["blocks"]:
                found[address] = PRIVATE if private else block.get("requested_size"), segment.get("stream", 0)
                address += block["size"]
        return found

    def _segments_before(self) -> list[Mapping[str, Any]]:
        return [segment for segment in self._recording.before["segments"] if segment["device"] == self._index]

    def _before_bytes(self) -> int:
        return sum(block.size for block in self._blocks if block.born == -1)

    # -- categories -----------------------------------------------------------------

    def _phases(self) -> tuple[list[int], list[str]]:
        """The phases by the event they begin before, none that has no event."""
        places: list[int] = []
        phases: list[str] = []
        for place, boundary in zip(self._places[:-1], self._recording.boundaries):
            if places and places[-1] == place:
                phases[-1] = boundary.phase
            elif not phases or phases[-1] != boundary.phase:
                places.append(place)
                phases.append(boundary.phase)
        return places, phases

    def _classify(self, places: list[int], phases: list[str]) -> None:
        end = len(self._times)
        known = self._recording.known.get(self._index, {})
        buckets = self._buckets()
        backwards = [place for place, phase in zip(places, phases) if phase == "backward"]
        for number, block in enumerate(self._blocks):
            if number % _BATCH == 0:
                self._pause()
            if block.category:
                continue
            if block.size in self._recording.workspaces and block.alive(end):
                block.category = "workspaces"  # many activations have its size; few of them outlive the step
            elif block.born == -1:
                bucket = block.address in buckets and block.alive(end)
                block.category = "communication" if bucket else _known(known.get(block.address), block.size)
                block.name = "DDP bucket" if block.category == "communication" else ""
            elif communicates(block.frames):
                block.category = "communication"
            else:
                block.category = self._by_birth(block, places, phases, backwards)

    def _buckets(self) -> set[int]:
        """Addresses of blocks that were there before, and were asked for with a bucket's size."""
        wanted, found = self._recording.buckets, set()
        for segment in self._recording.before["segments"] if wanted else ():
            if segment["device"] == self._index:
                address = segment["address"]
                for block in segment["blocks"]:
                    if block.get("requested_size") in wanted and block["state"] == "active_allocated":
                        found.add(address)
                    address += block["size"]
        return found

    @staticmethod
    def _by_birth(block: _Block, places: list[int], phases: list[str], backwards: list[int]) -> str:
        at = bisect.bisect_right(places, block.born) - 1
        phase = phases[at]
        if phase in ("forward", "loss"):
            following = bisect.bisect_right(backwards, block.born)
            if following < len(backwards) and block.alive(backwards[following]):
                return "activations"
        # Backward leaves gradients; what comes between it and the optimizer works on them.
        elif phase == "between" and phases[at - 1 : at + 2 : 2] == ["backward", "optimizer"]:
            return "temporaries"
        return _BORN.get(phase, "unattributed")

    # -- the message -------------------------------------------------------------------

    def message(self) -> RecordedStep:
        """All of it, as the viewer gets it."""
        recording = self._recording
        places, phases = self._phases()
        self._classify(places, phases)
        names: dict[str, int] = {}
        numbers = {category: number for number, category in enumerate(CATEGORIES)}
        blocks = []
        for number, block in enumerate(self._blocks):
            if number % _BATCH == 0:
                self._pause()
            name = names.setdefault(block.name, len(names)) if block.name else -1
            site = self._sites.of(block.frames) if block.born >= 0 else -1
            module = self._running.at(block.frames, self._times[block.born]) if block.born >= 0 else -1
            blocks.append((block.born, block.died, block.size, numbers[block.category], name, site, module))
        first, last = recording.boundaries[0], recording.boundaries[-1]
        settings = recording.after.get("allocator_settings") or {}
        return RecordedStep(
            device=f"cuda:{self._index}",
            step=recording.step,
            time_ns=first.time_ns,
            duration_ns=last.time_ns - first.time_ns,
            cost_ns=recording.cost_ns,
            before_bytes=self._before_bytes(),
            counted_peak_bytes=self._counted_peak(),
            event_us=tuple((time - self._begun_ns) // 1000 for time in self._times),
            marks=tuple(Mark(place, phase) for place, phase in zip(places, phases)),
            blocks=tuple(blocks),
            categories=CATEGORIES,
            names=tuple(names),
            sites=tuple(self._sites.texts),
            modules=recording.submodules.names,
            lost_events=self._lost,
            notices=tuple(self._notices),
            heap=None if self._full else self._course.heap(self._segments_before(), self._blocks, settings),
        )

    def _counted_peak(self) -> Optional[int]:
        """The allocator's peak where it rose in this step and was not set back in it."""
        counts = [boundary.counts.get(self._index) for boundary in self._recording.boundaries]
        peaks = [count.peak_bytes for count in counts if count is not None]
        return peaks[-1] if len(peaks) > 1 and peaks == sorted(peaks) and peaks[-1] > peaks[0] else None


_EVENTS = ("alloc", "free_requested")


def _number(entries: list[Mapping[str, Any]]) -> int:
    return sum(1 for entry in entries if entry["action"] in _EVENTS)


def _live(segments: list[Mapping[str, Any]], index: int) -> dict[int, int]:
    found = {}
    for segment in segments:
        if segment["device"] == index:
            address = segment["address"]
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    found[address] = block["size"]
                address += block["size"]
    return found


def _own(current: dict[int, _Block], owners: Optional[Owners]) -> None:
    """Gives the blocks that are there now their owner, unless they have one from before.

    A tensor may begin anywhere in its block: the one at the block's beginning counts, else the first.
    """
    if not owners or not current:
        return
    inside: dict[int, list[int]] = {}
    starts = sorted(current)
    for address in sorted(owners):
        block = current.get(address)
        if block is not None:
            start = address
        else:
            place = bisect.bisect_right(starts, address) - 1
            if place < 0 or address >= starts[place] + current[starts[place]].size:
                continue
            start = starts[place]
        inside.setdefault(start, []).append(address)
    for start, addresses in inside.items():
        block = current[start]
        if not block.category:
            block.category, block.name = owners[addresses[0]]
            if len(addresses) > 1:
                block.name += f" and {len(addresses) - 1} more"


def _known(birth: Optional[tuple[int, str]], size: int) -> str:
    """What the live looks knew of a block that was there before."""
    if birth is None or birth[0] != size:
        return "unattributed"
    # Born in backward or the optimizer, and looked at before gradients and state were told apart.
    return birth[1] if birth[1] in CATEGORIES else "temporaries"
