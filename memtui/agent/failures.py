"""Allocations that torch gives up: noted on the thread that ran out of memory, where nothing may raise."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

from ..wire.frames import Event, Failure, LiveSite, Pinned
from .activity import Activity
from .blocks import device_blocks, is_private
from .budget import Budget
from .classify import Births
from .counters import CudaCounters
from .stack import DEPTH, own_pass
from .stacks import Sites
from .uncollected import uncollected

if TYPE_CHECKING:
    from .observer import Observer

#: A program that tries out batches runs out of memory again and again: so much of its time goes into reading at most,
#: and as much into waiting until it is told.
_SHARE, _READING_NS, _WAITING_NS = 0.005, 300_000_000, 100_000_000
#: More blocks than these take half a second to be read.
_MOST_BLOCKS = 200_000
_MOST_PINNED, _MOST_SITES = 8, 8
#: Another thread may be reading the same blocks: it is waited for about as long as that takes, after which they are
#: read here too.
_LOCK_SECONDS, _LOCK_SECONDS_A_BLOCK, _TOLD_SECONDS = 0.02, 1e-5, 0.1
_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_MOST_TEXT = 300
_TORCH = f"{os.sep}torch{os.sep}"
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Failures:
    """Notes them, and lets the failing thread wait a moment until they are told: it may be killed right after."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        now = time.monotonic_ns()
        self._reading, self._waiting = Budget(_SHARE, _READING_NS, now), Budget(_SHARE, _WAITING_NS, now)
        self._block_ns = 0.0  # what reading has cost for each block, at most; nothing before the first time
        self._wait_ns = 0  # how long was waited last
        self._told = threading.Event()
        self.urgent = False  # somebody waits

    def note(self, index: int, asked_bytes: int, total_bytes: int, free_bytes: int, activity: Activity) -> Event:
        """The event, from what torch tells: it has given up its lock by then, so that it may be asked.

        Where a part of the device is all that may be used, that is what torch calls the total.
        """
        observer, device = self._observer, f"cuda:{index}"
        figures = {"asked_bytes": asked_bytes, "device_total_bytes": total_bytes, "device_free_bytes": free_bytes}
        known = next((each for each in observer.readings.devices if each.device == device), None)
        with contextlib.suppress(AttributeError, LookupError, RuntimeError, TypeError):
            counters = known or CudaCounters(observer.torch, index)
            whole = counters.info.total_bytes
            if whole is not None and total_bytes < whole:
                figures.update(device_total_bytes=whole, allowed_bytes=total_bytes)
            figures.update({name: size for name, size in counters.read().items() if size is not None})
        phase, step = observer.notes.latest()
        phase = activity.now(threading.get_ident()) or phase or own_pass()
        now = time.monotonic_ns()
        return Event("oom", now, step, phase, device, figures, failure=self._failure(device, figures, now))

    def _failure(self, device: str, figures: dict[str, int], now_ns: int) -> Failure:
        """What can be read within the budget, the first time in any case; what cannot be is left out."""
        begun = time.thread_time_ns()
        given: dict[str, Any] = {"site": _site(), "settings": _settings()}
        blocks = figures.get("num_blocks", 0)
        whole = blocks <= _MOST_BLOCKS and self._reading.allows(self._block_ns * blocks, now_ns)
        if whole:
            lock = self._observer.lock
            alone = lock.acquire(timeout=_LOCK_SECONDS + _LOCK_SECONDS_A_BLOCK * blocks)
            try:
                given.update(uncollected(self._held, device, now_ns, alone))
            except (LookupError, TypeError, ValueError, AttributeError, RuntimeError):  # blocks like no known torch's
                given.pop("pinned", None)
            finally:
                if alone:
                    lock.release()
        cost_ns = time.thread_time_ns() - begun
        self._reading.spend(cost_ns)
        if whole:
            self._block_ns = max(self._block_ns, cost_ns / max(1, blocks))
        return Failure(**given, cost_ns=cost_ns)

    def _held(self, device: str, now_ns: int, alone: bool) -> dict[str, Any]:
        """Blocks, categories and what is pinned; these two only where no other thread looks meanwhile."""
        observer = self._observer
        looks = observer.looks
        recorded = observer.recorder.recording is not None
        if looks.reader.recording() and not recorded:
            return {}  # a snapshot would leave an entry in the program's own history
        snapshot = looks.reader.snapshot()
        if snapshot is None:
            return {}
        settings = snapshot.get("allocator_settings") or {}
        given: dict[str, Any] = {"expandable": settings.get("expandable_segments")}
        if alone:
            classification, births = looks.when_failed(device, observer.phases, now_ns, snapshot)
            given.update(classification=classification, undecided_bytes=births.undecided_bytes)
            given["pinned"] = tuple(_pinned(snapshot["segments"], device, births))
            given["switched_to_eval"] = looks.switched_to_eval()
        given["blocks"] = device_blocks(snapshot["segments"], device).summary(0)
        if recorded:
            given["sites"] = _live_sites(snapshot["segments"], device, os.path.dirname(observer.torch.__file__))
        return given

    def wait(self, thread: Optional[threading.Thread], wake: Any) -> None:
        """Waits until the agent's thread has told what was noted: no longer than a moment, and within the budget."""
        now = time.monotonic_ns()
        if thread is None or not thread.is_alive() or not self._waiting.allows(self._wait_ns, now):
            return
        self._told.clear()
        self.urgent = True
        wake()
        self._told.wait(_TOLD_SECONDS)
        self._wait_ns = time.monotonic_ns() - now
        self._waiting.spend(self._wait_ns)

    def told(self) -> None:
        """Lets whoever waits go on; from the agent's thread."""
        self.urgent = False
        self._told.set()


def _pinned(segments: list[dict[str, Any]], device: str, births: Births) -> Iterator[Pinned]:
    """The segments with most that is free beside something live, the most first."""
    found = []
    for segment in segments:
        if f"cuda:{segment['device']}" != device or is_private(segment):
            continue
        free = [block["size"] for block in segment["blocks"] if block["state"] == "inactive"]
        live = [block for block in segment["blocks"] if block["state"] != "inactive"]
        if free and live:
            found.append((sum(free), max(free), segment, live))
    found.sort(key=lambda item: (-item[0], item[2]["address"]))
    for free_bytes, largest, segment, live in found[:_MOST_PINNED]:
        block = max(live, key=lambda each: each["size"])
        yield Pinned(
            segment["address"],
            segment["total_size"],
            free_bytes,
            largest,
            len(live),
            block["address"],
            block["size"],
            births.category_of(block["address"], block["size"]),
        )


def _live_sites(segments: list[dict[str, Any]], device: str, torch_folder: str) -> tuple[LiveSite, ...]:
    """The call sites with most live memory, of the blocks that a history knows."""
    sites, sizes = Sites(torch_folder), defaultdict[int, list[int]](list)
    for segment in segments:
        if f"cuda:{segment['device']}" != device:
            continue
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and block.get("frames"):
                sizes[sites.of(block["frames"])].append(block["size"])
    largest = sorted(sizes, key=lambda site: -sum(sizes[site]))[:_MOST_SITES]
    return tuple(LiveSite(sites.texts[site], sum(sizes[site]), len(sizes[site])) for site in largest)


def _site() -> str:
    """Where this thread's innermost frame of the program is; only names and line numbers are read, never locals."""
    frame: Any = sys._getframe(1)
    for _ in range(DEPTH):
        if frame is None:
            break
        code = frame.f_code
        name = code.co_filename
        if _TORCH not in name and not name.startswith((_OWN, "<frozen")):
            return f"{os.path.basename(name)}:{frame.f_lineno} {code.co_name}"[:_MOST_TEXT]
        frame = frame.f_back
    return ""


def _settings() -> str:
    """What the environment tells the allocator."""
    return " ".join(f"{name}={os.environ[name]}" for name in _SETTINGS if os.environ.get(name))[:_MOST_TEXT]
