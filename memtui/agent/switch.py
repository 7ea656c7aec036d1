"""Torch's memory history, switched on and off for whoever records: never beside the program's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .blocks import BlockReader
from .readings import Readings
from .uncollected import uncollected

#: What switches a history on and off.
_SWITCHES = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy")
#: Another thread looks at devices no longer than this, as a rule.
_PATIENCE_S = 0.02


class HistorySwitch:
    """While it is `on` the history is the agent's; `told` is called when the program wants one of its own."""

    def __init__(self, torch: Any, readings: Readings) -> None:
        self._torch, self._readings = torch, readings
        self.reader = BlockReader(torch)
        self.on = False
        self._told: Callable[[], None] = _nobody
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
        context = "alloc" if stacks else None
        self._torch.cuda.memory._record_memory_history("all", context=context, stacks="python", max_entries=max_entries)

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

    def asked(self) -> tuple[int, int]:
        """Allocations and the bytes asked for so far, on all devices together."""
        read = [self._torch._C._cuda_memoryStats(index) for index in self.devices()]
        allocations = sum(int(stats["allocation"]["all"]["allocated"]) for stats in read)
        return allocations, sum(int(stats["requested_bytes"]["all"]["allocated"]) for stats in read)

    def live_blocks(self) -> int:
        """How many blocks are live, on all devices together."""
        read = [self._torch._C._cuda_memoryStats(index) for index in self.devices()]
        return sum(int(stats["allocation"]["all"]["current"]) for stats in read)

    def _noticed(self) -> None:
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


def _nobody() -> None:
    return None
