"""Torch's memory history, switched on and off for whoever records: never beside the program's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Optional

from .blocks import BlockReader
from .readings import Readings
from .uncollected import uncollected

#: What switches a history on and off.
_SWITCHES = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy")
#: All that a history may leave out, so that nothing is added to it any more; the last one is newer than the others.
_ACTIONS = [
    *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap"),
    *("oom", "snapshot", "annotate"),
]
#: Another thread looks at devices no longer than this, as a rule.
_PATIENCE_S = 0.02


class Counts(NamedTuple):
    """What the allocator's counters say, of all devices together."""

    allocations: int  # so far
    requested_bytes: int  # so far
    live_blocks: int
    allocated_bytes: int
    reserved_bytes: int


class HistorySwitch:
    """While it is `on` the history is the agent's; `told` is called when the program wants one of its own."""

    def __init__(self, torch: Any, readings: Readings) -> None:
        self._torch, self._readings = torch, readings
        self.reader = BlockReader(torch)
        self.on = False
        self._told: Callable[[], None] = _nobody
        self._own = 0  # the thread that calls such a function for the agent
        self._unpausable = False
        self._watches: list[tuple[str, Any, Any]] = []  # name, torch's function, what stands in its place

    def devices(self) -> tuple[int, ...]:
        """The CUDA devices that are in use."""
        names = (counters.device for counters in self._readings.devices)
        return tuple(int(name[5:]) for name in names if name.startswith("cuda:"))

    def obstacle(self) -> str:
        """Why the program cannot be recorded now, or nothing; to be asked while it is off.

        A device that the program has begun to use this second is recorded too.
        """
        self._readings.refresh(time.monotonic_ns(), at_once=True, patience_s=_PATIENCE_S)
        if not self._torch.cuda.is_initialized() or not self.devices():
            return "no CUDA device is in use: only torch's CUDA allocator keeps a history"
        if not all(counters.native for counters in self._readings.devices if counters.device.startswith("cuda:")):
            return "cudaMallocAsync keeps no history"
        if not hasattr(self._torch._C, "_cuda_isHistoryEnabled"):
            return "this torch does not tell whether the program records a memory history of its own"
        if self.reader.recording():
            return "the program records a memory history of its own, which is left alone"
        return ""

    def turn_on(self, max_entries: int, *, stacks: bool = True) -> None:
        """So many entries are kept, the latest ones; with Python's stacks of allocations."""
        self.on = True
        self._record("alloc" if stacks else None, max_entries, {})

    def _record(self, context: Optional[str], max_entries: int, more: dict[str, Any]) -> None:
        record = self._torch.cuda.memory._record_memory_history
        if "global_record_annotations" in _parameters(record):
            # Else the thread that switches it off would have to be the one that has switched it on: on another one
            # torch does not find what it has put in for the program's annotations, and says so on the terminal.
            more = {**more, "global_record_annotations": True}
        record("all", context=context, stacks="python", max_entries=max_entries, **more)

    def watch(self, told: Callable[[], None]) -> None:
        """From now on it is told when the program switches a history on or off, before that is done."""
        self._told = told
        for name in _SWITCHES:
            original = getattr(self._torch._C, name, None)
            if original is not None:
                watched = _Watched(original, self._noticed)
                setattr(self._torch._C, name, watched)
                self._watches.append((name, original, watched))

    def read(self) -> dict[str, Any]:
        """Torch's snapshot with the history.

        Python's collector rests meanwhile: what torch makes would set it off, through all the program's objects.
        """
        return uncollected(self._torch.cuda.memory._snapshot)

    @property
    def pauses(self) -> bool:
        """Whether torch can keep a history to which nothing is added, and tell blocks without it (2.13 and newer)."""
        known = _parameters(self._torch.cuda.memory._record_memory_history)
        return "skip_actions" in known and not self._unpausable and self.reader.lean

    def pause(self, max_entries: int) -> Optional[list[dict[str, Any]]]:
        """From now on nothing is added to the history, which is as long as before: the segments at this instant.

        None where torch will not have it: then it goes on, and is not asked for that again.
        """
        for actions in (_ACTIONS, _ACTIONS[:-1]):
            self._own = threading.get_ident()
            try:
                self._record(None, max_entries, {"skip_actions": actions})
            except RuntimeError:  # it does not know one of them
                continue
            finally:
                self._own = 0
            self.on = True  # also where another thread has just switched it off
            return uncollected(self._lean).get("segments")
        self._unpausable = True
        return None

    def _lean(self) -> dict[str, Any]:
        return self.reader.snapshot() or {}

    def turn_off(self) -> None:
        """From any thread; everything is as it was."""
        self._unwatch()
        if self.on:
            self.on = False
            self._torch.cuda.memory._record_memory_history(None)

    def forget(self) -> None:
        """In a forked child: its allocator cannot be used, and is not asked for anything."""
        self.on = False
        self._unwatch()

    def counts(self) -> Counts:
        """What the allocator has counted, on all devices together."""
        read = [self._torch._C._cuda_memoryStats(index) for index in self.devices()]
        allocations = [stats["allocation"]["all"] for stats in read]
        return Counts(
            sum(int(each["allocated"]) for each in allocations),
            sum(int(stats["requested_bytes"]["all"]["allocated"]) for stats in read),
            sum(int(each["current"]) for each in allocations),
            sum(int(stats["allocated_bytes"]["all"]["current"]) for stats in read),
            sum(int(stats["reserved_bytes"]["all"]["current"]) for stats in read),
        )

    def asked(self) -> tuple[int, int]:
        """Allocations and the bytes asked for so far, on all devices together."""
        counts = self.counts()
        return counts.allocations, counts.requested_bytes

    def live_blocks(self) -> int:
        """How many blocks are live, on all devices together."""
        return self.counts().live_blocks

    def _noticed(self) -> None:
        if self._own != threading.get_ident():
            self._told()

    def _unwatch(self) -> None:
        for name, original, watched in self._watches:
            if getattr(self._torch._C, name, None) is watched:
                setattr(self._torch._C, name, original)
        self._watches.clear()


class _Watched:
    """Stands in for a function of torch's, and tells when it is asked to be called; adds no frame."""

    def __init__(self, original: Any, told: Callable[[], None]) -> None:
        self._original, self._told = original, told

    @property
    def __call__(self) -> Any:
        self._told()
        return self._original


def _parameters(function: Any) -> Collection[str]:
    signature = getattr(function, "__signature__", None)
    return () if signature is None else signature.parameters


def _nobody() -> None:
    return None
