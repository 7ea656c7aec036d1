"""Ending a program that was started by memtui, the gentle way first."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import Optional

from memtui.sources.program import ExitStatus
from memtui.sources.program_link import ProgramLink

#: What is sent, and how long it is given to act on it. A training may be writing a checkpoint.
_STEPS = ((signal.SIGINT, 10.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))


def stop_program(pid: int) -> Optional[ExitStatus]:
    """Interrupts program `pid`, then terminates, then kills it; its exit status, which stays to be collected.

    Raises ProgramError. Ctrl-C meanwhile goes on to the next step at once.
    """
    return asyncio.run(_stop(pid))


async def _stop(pid: int) -> Optional[ExitStatus]:
    ended = asyncio.Event()
    impatient = asyncio.Event()
    link = ProgramLink(pid, lambda status, reason: ended.set())
    await link.open(collect=False)
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError, RuntimeError):
        loop.add_signal_handler(signal.SIGINT, impatient.set)
    for number, seconds in _STEPS:
        if ended.is_set():
            break
        impatient.clear()
        link.send_signal(number, group=True)
        waits = [asyncio.ensure_future(ended.wait()), asyncio.ensure_future(impatient.wait())]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()
        if not ended.is_set() and number != signal.SIGKILL:
            print(f"memtui: process {pid} still runs after {number.name}", file=sys.stderr)
    link.close()
    return link.exit_status
