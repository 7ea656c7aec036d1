"""Exact peaks of steps: CUDA's peak counters are reset at each step's end, and the program sees nothing of it."""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from itertools import chain
from operator import itemgetter
from typing import Any, Optional

#: (device's index, the most that was allocated there since its last reset), for each device.
Taken = tuple[tuple[int, int], ...]

_peak = itemgetter("peak")
_PRIVATE = "reserved_bytes_by_private_pools"  # torch 2.14
#: So many readings are kept whole before they are made into one set of peaks, which at each step takes longer.
_WHOLE = 4

#: Peaks in the order of `paths`, and those of pools of the program's own by path.
_Peaks = tuple[tuple[int, ...], dict[tuple[Any, ...], int]]


class _Saved:
    """One device's peaks from before the agent's resets, since the program's own last one."""

    def __init__(self, families: list[str], singles: list[str], paths: list[tuple[Any, ...]]) -> None:
        self._families, self._singles, self._paths = families, singles, paths
        self._whole: list[dict[str, Any]] = []
        self._peaks: Optional[_Peaks] = None

    @classmethod
    def of(cls, stats: dict[str, Any]) -> _Saved:
        """Nothing yet, of counters that are laid out like `stats`."""
        nested = {name: value for name, value in stats.items() if isinstance(value, dict) and name != _PRIVATE}
        singles = [name for name, value in nested.items() if "peak" in value]
        families = [name for name in nested if name not in singles]
        paths: list[tuple[Any, ...]] = [(name, pool) for name in families for pool in nested[name]]
        return cls(families, singles, paths + [(name,) for name in singles])

    def emptied(self) -> _Saved:
        """As after a reset of the program's."""
        return _Saved(self._families, self._singles, self._paths)

    def __bool__(self) -> bool:
        return bool(self._whole) or self._peaks is not None

    def add(self, stats: dict[str, Any]) -> None:
        """Keeps the peaks of `stats`."""
        self._whole.append(stats)
        count = len(self._whole)
        if count > _WHOLE:
            self._peaks = self._merged(self._whole[:count])
            del self._whole[:count]  # after they are in the other: nobody reads neither

    def _merged(self, whole: list[dict[str, Any]]) -> _Peaks:
        sets, private = [], {}
        if self._peaks is not None:
            sets.append(self._peaks[0])
            private.update(self._peaks[1])
        for stats in whole:
            get = stats.__getitem__
            pools = chain.from_iterable(map(dict.values, map(get, self._families)))
            sets.append(tuple(map(_peak, chain(pools, map(get, self._singles)))))
            for pool, sizes in (stats.get(_PRIVATE) or {}).items():
                for name, size in sizes.items():
                    path = (_PRIVATE, pool, name)
                    private[path] = max(private.get(path, 0), size["peak"])
        return tuple(map(max, zip(*sets))), private

    def fold(self, stats: dict[str, Any]) -> bool:
        """Raises the peaks in `stats` to those kept; whether any of them was lower."""
        raised = False
        peaks, private = self._merged(self._whole[:])  # these first: see add
        for path, high in chain(zip(self._paths, peaks), private.items()):
            place: Any = stats
            for key in path:
                place = place.get(key) if place is not None else None
            if place is not None and place["peak"] < high:
                place["peak"] = high
                raised = True
        return raised


class ExactPeaks:
    """Resets the peak counters, and stands between them and the program so that its readings are as if nobody had.

    What is taken is kept before the counters are reset; where the program resets, what was kept is forgotten last. So
    whoever reads in between, in another thread or a signal handler, reads what was right before. A peak that another
    thread reaches and leaves while one is taken, within some 30 µs, is missed.
    """

    def __init__(self, torch: Any, noted: deque[Any]) -> None:
        self.noted = noted  # receives ("reset", nanoseconds, 0, Taken) when the program resets
        self.resets = 0  # of the program's
        self.settled = 0  # of those, the ones that were taken in from `noted`
        self._torch = torch
        self._stats: Any = getattr(torch._C, "_cuda_memoryStats", None)
        self._reset: Any = getattr(torch._C, "_cuda_resetPeakMemoryStats", None)
        self._backend: Any = getattr(torch._C, "_cuda_getAllocatorBackend", None)
        self.available = self._stats is not None and self._reset is not None
        #: Whether the counters are known to hold the step under way and nothing older.
        self.whole = not (self.available and torch.cuda.is_initialized())
        self._saved: dict[int, _Saved] = {}
        self._lock = threading.RLock()  # held while anything is reset
        self._taking = False
        self._over = False
        self._placed: dict[str, tuple[Any, Any]] = {}

    def install(self) -> None:
        """Stands in for torch's functions, those of them that there are."""
        if not self.available:
            return
        functions = self._torch._C
        evaluation = getattr(getattr(functions, "_dynamo", None), "eval_frame", None)
        skip = getattr(evaluation, "skip_code", _nothing)  # torch.compile is not to look at what is called here
        for method in (*vars(_Saved).values(), *vars(ExactPeaks).values()):
            if hasattr(method, "__code__"):
                skip(method.__code__)
        for name, stand_in in (
            ("_cuda_memoryStats", self._reader),
            ("_accelerator_getDeviceStats", self._reader),
            ("_cuda_resetPeakMemoryStats", self._resetter),
            ("_accelerator_resetPeakStats", self._resetter),
        ):
            original = getattr(functions, name, None)
            if original is not None:
                function: Any = stand_in(original, name.startswith("_accelerator"))
                skip(function.__code__)
                own = functools.wraps(original)(function)
                self._placed[name] = (original, own)
                setattr(functions, name, own)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forget_lock(weakref.ref(self)))

    # -- what the agent calls -----------------------------------------------------

    def follow(self, device: int) -> None:
        """From now on the peaks of `device` are taken."""
        with self._lock:
            if device not in self._saved:
                self._saved[device] = _Saved.of(self._stats(device))

    def read(self, device: int) -> tuple[dict[str, Any], int]:
        """The counters as the program would read them, and the most allocated since the last reset of anybody's."""
        saved = self._saved.get(device)  # before the counters: see take
        stats = self._stats(device)
        counted: int = stats["allocated_bytes"]["all"]["peak"]
        if saved is not None:
            saved.fold(stats)
        return stats, counted

    def take(self) -> Taken:
        """The peaks since the last reset, which are then reset. On the thread whose step has ended."""
        taken = []
        with self._lock:
            if self._over:
                return ()
            self._taking = True
            try:
                for device, saved in tuple(self._saved.items()):
                    stats = self._stats(device)
                    saved.add(stats)
                    self._reset(device)
                    taken.append((device, stats["allocated_bytes"]["all"]["peak"]))
            finally:
                self._taking = False
        return tuple(taken)

    def end(self) -> None:
        """Nothing is taken any more. The stand-ins go as soon as the program can do without.

        While a peak is kept that is higher than torch's own counter, they stay and do nothing but fold it in: there is
        no way to raise torch's counter to what it was before. They go when the program resets, or when a reading shows
        that the counters have risen to what is kept.
        """
        self._over = True
        if not self.available:
            return
        with self._lock:
            for device, saved in tuple(self._saved.items()):
                if not self._taking and not saved.fold(self._stats(device)):
                    del self._saved[device]
            self._leave()

    def _leave(self) -> None:
        if not self._over or self._taking or any(self._saved.values()):
            return
        for name, (original, own) in self._placed.items():
            if getattr(self._torch._C, name, None) is own:  # else somebody has put something over it
                setattr(self._torch._C, name, original)

    def forked(self) -> None:
        """In a forked child. What is kept stays: the child has inherited torch's counters too."""
        # Another thread of the parent's may have held the lock.
        self._lock = threading.RLock()
        self._taking = False

    # -- what the program calls ---------------------------------------------------

    def _is_cuda(self, accelerator: bool) -> bool:
        return not accelerator or str(self._torch._C._accelerator_getAccelerator()) == "cuda"

    def _reader(self, original: Any, accelerator: bool) -> Callable[[Any], Any]:
        def read(device: Any) -> Any:
            saved = self._saved.get(device) if self._is_cuda(accelerator) else None  # before the counters: see take
            stats = original(device)
            if saved and not saved.fold(stats) and self._over and not accelerator:
                self._forget(device, saved)
            return stats

        return read

    def _forget(self, device: int, saved: _Saved) -> None:
        """What is kept is no longer needed: the counters have risen to it."""
        with self._lock:
            if not self._taking and self._saved.get(device) is saved:
                del self._saved[device]
            self._leave()

    def _resetter(self, original: Any, accelerator: bool) -> Callable[[Any], Any]:
        def reset(device: Any) -> Any:
            if not self._is_cuda(accelerator):
                return original(device)
            with self._lock:
                stats = self._begin_reset(device)
                answer = original(device)
                if stats is not None:
                    self._end_reset(device, stats)
                return answer

        return reset

    def _begin_reset(self, device: Any) -> Any:
        if self._backend is not None and self._backend() != "native":
            return None  # nothing is taken from another allocator, nor anything kept of it
        try:
            self.follow(device)
            stats = self._stats(device)
        except (RuntimeError, TypeError, ValueError):  # no such device: torch says so itself
            return None
        self._saved[device].add(stats)
        return stats

    def _end_reset(self, device: int, stats: Any) -> None:
        self._saved[device] = self._saved[device].emptied()
        if self._over:
            self._leave()
            return
        self.resets += 1
        self.noted.append(("reset", time.monotonic_ns(), 0, ((device, stats["allocated_bytes"]["all"]["peak"]),)))


def _nothing(_code: Any) -> None:
    return None


def _forget_lock(reference: Callable[[], Optional[ExactPeaks]]) -> Callable[[], None]:
    def forked() -> None:
        exact = reference()
        if exact is not None:
            exact.forked()

    return forked
