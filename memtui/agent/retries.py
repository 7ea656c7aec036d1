"""Allocations that worked, or failed, only after torch had given its cache back: each told as of when it was."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Optional

from ..wire.frames import DeviceFrame, Event, Frame

_COUNT = "num_alloc_retries"
_FIGURES = ("allocated_bytes", "reserved_bytes")


class Retries:
    """Events of retries. Frames count them later; those before an out-of-memory error are as old as the error."""

    def __init__(self) -> None:
        self._failed: dict[str, deque[Event]] = {}
        self._told: dict[str, int] = {}

    def failed(self, oom: Event) -> None:
        """Notes an error; called where nothing may raise, on the thread that ran out of memory."""
        self._failed.setdefault(oom.device or "", deque(maxlen=64)).append(oom)

    def events(self, frame: Frame, device: DeviceFrame) -> Iterator[Event]:
        """What is new in a frame, in order; for the agent's thread."""
        counted, name = device.num_alloc_retries or 0, device.device
        told = min(self._told.get(name, 0), counted)
        failed = self._failed.get(name)
        while failed and counted > told and failed[0].time_ns <= frame.time_ns:
            oom = failed.popleft()
            # Torch tries again before it gives up. Before the device was known nobody read how often that was so far.
            until = oom.figures.get(_COUNT)
            if until is None or until > told:
                yield _retry(oom.time_ns, oom.step, oom.phase, name, until, oom.figures)
                told = told + 1 if until is None else until
        if counted > told:
            held = {key: getattr(device, key) or 0 for key in _FIGURES}
            yield _retry(frame.time_ns, frame.step, frame.phase, name, counted, held)
        self._told[name] = max(told, counted)


def _retry(time_ns: int, step: int, phase: str, device: str, count: Optional[int], figures: dict[str, int]) -> Event:
    held = {key: figures[key] for key in _FIGURES if key in figures}
    counted = {} if count is None else {_COUNT: count}
    return Event("alloc_retry", time_ns, step, phase, device, {**counted, **held})
