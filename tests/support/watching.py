"""Watching a process from a process of its own: NVML's stand-in belongs to one set of virtual GPUs at a time."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Optional

from memtui.session.session import Session
from memtui.sources.log_writer import LogWriter
from memtui.sources.monitor import Monitor

Until = Callable[[Session], bool]


def watch(pid: int, until: Until, *, log: Optional[str] = None, seconds: float = 30.0, ask: str = "") -> Session:
    """The session of a monitor of `pid` once `until` (a function of a module) is true of it; fails after `seconds`.

    Until then the agent is asked for `ask` again and again, if for anything.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        reached, session = pool.submit(_watch, pid, until, log, seconds, ask).result()
    assert reached, (session.frame, session.driver, session.connection_text, session.notices)
    return session


def _watch(pid: int, until: Until, log: Optional[str], seconds: float, ask: str) -> tuple[bool, Session]:
    async def run() -> tuple[bool, Session]:
        monitor = Monitor(pid, log=None if log is None else LogWriter(log, "0.1.0"))
        await monitor.start()
        deadline = time.monotonic() + seconds
        while not until(monitor.session) and time.monotonic() < deadline:
            if ask:
                monitor.request(ask)
            await asyncio.sleep(0.05)
        reached = until(monitor.session)
        await monitor.stop()
        return reached, monitor.session

    return asyncio.run(run())


def settled(steps: int) -> Until:
    """So many steps, and the driver's figures beside the allocator's."""
    return partial(_settled, steps)


def has_segments(session: Session) -> bool:
    """Some steps, the allocator's segments after them, and the driver's figures."""
    found, pair = session.segments("cuda:0"), session.paired("cuda:0")
    return bool(found and found.step > 5 and pair and pair.settled)


def ended(session: Session) -> bool:
    """The process is gone."""
    return session.end is not None


def refused_figures(session: Session) -> bool:
    """The driver has said what it will not tell of the first GPU, and the training runs."""
    reading = session.reading("cuda:0")
    return bool(reading and reading.reason and session.frame and session.frame.step > 1)


def has_company(session: Session) -> bool:
    """Another process holds memory on the GPU."""
    reading = session.reading("cuda:0")
    return _settled(1, session) and bool(reading and reading.others and reading.others[0].bytes_held)


def _settled(steps: int, session: Session) -> bool:
    pair = session.paired("cuda:0")
    enough = session.frame is not None and session.frame.step >= steps
    return enough and pair is not None and pair.settled and pair.reading.process_bytes is not None
