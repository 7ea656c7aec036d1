"""The daemon: what listens, what is read, and the signals that end both."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Optional

from memtui.analysis.text import clean

from .address import Address
from .entering import Entering
from .listener import Listener
from .machine import Machine
from .scrape import PATH, Scrapes

#: For NVML to start, before it is told what was found.
_LOOK_SECONDS = 2.0
_FILES = 16_384


@dataclass(frozen=True)
class Wanted:
    """What was asked for; `auto` is None where no process is to get an agent."""

    address: Address
    tls: Optional[ssl.SSLContext] = None
    credentials: Optional[bytes] = None
    auto: Optional[tuple[str, ...]] = None


def serve(wanted: Wanted, listening: socket.socket, said: Callable[[str], None]) -> int:
    """Runs until a signal ends it; the exit status. `said` gets lines for the user."""
    _allow_files()
    return asyncio.run(_serve(wanted, listening, said))


async def _serve(wanted: Wanted, listening: socket.socket, said: Callable[[str], None]) -> int:
    signalled = _Signalled()
    entering = None if wanted.auto is None else Entering(wanted.auto, said)
    machine = Machine(None if entering is None else entering.consider)
    with ThreadPoolExecutor(1, "memtui-scrape") as executor:
        scrapes = Scrapes(machine.families, executor, wanted.credentials, machine.refuse)
        listener = Listener(listening, scrapes.answer, machine.refuse, wanted.tls)
        watching = _watch(machine, wanted, listening, said)
        tasks = [asyncio.ensure_future(each) for each in (listener.run(), watching, signalled.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            machine.close()
            if entering is not None:
                await entering.close()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return signalled.status


class _Signalled:
    """The signals that end it, and the status it has then."""

    def __init__(self) -> None:
        self.status = 1
        self._come = asyncio.Event()
        for number, status in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
            asyncio.get_running_loop().add_signal_handler(number, self._hear, status)

    def _hear(self, status: int) -> None:
        self.status = status
        self._come.set()

    async def wait(self) -> None:
        await self._come.wait()


async def _watch(machine: Machine, wanted: Wanted, listening: socket.socket, said: Callable[[str], None]) -> None:
    await machine.first_look(_LOOK_SECONDS)
    said(f"metrics at {_url(wanted, listening)}; found {_found(machine)}")
    await machine.run()


def _url(wanted: Wanted, listening: socket.socket) -> str:
    address = Address(wanted.address.host, listening.getsockname()[1])
    return f"{'http' if wanted.tls is None else 'https'}://{address}{PATH}"


def _found(machine: Machine) -> str:
    agents = len(machine.ranks)
    named = f"{agents} agent{'' if agents == 1 else 's'}"
    reading = machine.driver
    if reading is None:
        return f"{named}; the driver has not answered yet"
    if not reading.devices and machine.has_virtual_gpus:
        return f"{named}; virtual GPUs, which are read next"
    if not reading.devices:
        return f"{named}; {reading.reason or 'no GPU'}"
    names = sorted({clean(device.name, 60) or "GPU" for device in reading.devices})
    return f"{named} and {len(reading.devices)} GPU{'' if len(reading.devices) == 1 else 's'} ({', '.join(names)})"


def _allow_files() -> None:
    """Each agent and each scraper takes a file descriptor."""
    with contextlib.suppress(OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
