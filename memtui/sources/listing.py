"""What on this machine can be watched, and what else trains or holds a GPU."""

from __future__ import annotations

import asyncio
import os
import pathlib
import pwd
import time
from dataclasses import dataclass, replace
from typing import Any, Optional

import psutil

from memtui.inject.preflight import Refusal, check
from memtui.inject.reach import find_agent_of
from memtui.supervisor.messages import MessageError
from memtui.wire import codec
from memtui.wire.frames import PROTOCOL, Frame, Hello, Request

from .agent_probe import AgentError, check_greeting, check_owner
from .program import ProgramError, find_program
from .program_state import program_state
from .relatives import ancestors, rank_of
from .sockets import all_sockets, listener
from .stale import remove_stale

#: An agent answers within its period of 0.1 s; a stopped process never does.
_ANSWER_SECONDS = 0.6
#: In the commands of what multiprocessing and torch.compile start beside a training.
_WORKERS = ("multiprocessing.spawn", "multiprocessing.forkserver", "compile_worker")


@dataclass(frozen=True)
class Listed:
    """A process of the list; what is not known is None. `agent` is "yes", "no", "ended", or what is wrong with it."""

    pid: int
    user: str
    command: tuple[str, ...]
    created_s: Optional[float]
    agent: str
    device: str = ""
    memory_bytes: Optional[int] = None  # reserved by the allocator, else as the driver or the system has it
    supervised: bool = False
    rank: Optional[int] = None
    own: bool = True  # of this user, or this user is root
    part_of: Optional[int] = None  # the nearest process above it of this list, where it is only a helper of that
    stopped: bool = False  # by a signal
    refusal: Optional[Refusal] = None  # why no agent can get in, where there is none


def list_processes() -> list[Listed]:
    """Processes with an agent, programs under a supervisor, and others with PyTorch loaded or on a GPU; by pid."""
    return asyncio.run(_list())


async def _list() -> list[Listed]:
    remove_stale()
    agents = {pid: found.path for pid, found in all_sockets("agent").items()}
    supervised = set(all_sockets("run"))
    # The driver may need a second to start: meanwhile the agents answer.
    driver = asyncio.get_running_loop().run_in_executor(None, _on_devices)
    answers = await asyncio.gather(*(_ask(path) for path in agents.values()))
    found: dict[int, Listed] = {}
    for named, answer in zip(agents, answers):
        pid = answer.pop("pid", named)
        base = _describe(pid)
        # Where nobody listens, the socket was left behind; its process, if there is one, has loaded PyTorch or not.
        if base is not None and answer["agent"] != "gone":
            found[pid] = replace(base, supervised=pid in supervised, **answer)
    quiet = sorted(supervised - set(found))
    for pid, ended in zip(quiet, await asyncio.gather(*(asyncio.to_thread(_ended, pid) for pid in quiet))):
        if ended is not None:
            found[pid] = ended
            continue
        base = _describe(pid)
        if base is not None:
            found[pid] = replace(base, supervised=True, agent="not yet")
    apart: dict[int, pathlib.Path] = {}
    for pid in _with_torch(set(found)):
        base = _describe(pid)
        if base is None:
            continue
        found[pid] = base
        # In a container, or in a folder that only the process's own environment names.
        path = find_agent_of(pid)
        if path is not None:
            apart[pid] = path
    for pid, answer in zip(apart, await asyncio.gather(*(_ask(path) for path in apart.values()))):
        # Another container's process may listen in a folder that is shared; 0 is one that cannot be seen from here.
        if answer.pop("pid", pid) in (pid, 0) and answer["agent"] != "gone":
            found[pid] = replace(found[pid], **answer)
    for pid, (device, held) in (await driver).items():
        base = found.get(pid) or _describe(pid)
        if base is not None and base.memory_bytes is None:
            found[pid] = replace(base, device=base.device or device, memory_bytes=held)
    return [_placed(found[pid], found) for pid in sorted(found)]


def _placed(listed: Listed, found: dict[int, Listed]) -> Listed:
    """With the process that it is a part of, else with why no agent can get in.

    A worker of a loader has PyTorch too, and what it does is not training: it uses no device, and is of the same rank
    as the process above it. What a notebook or a sweep starts is a training of its own.
    """
    if listed.agent != "no":
        return listed
    above = next((pid for pid in ancestors(listed.pid) if pid in found), None)
    if above is not None and not listed.device:
        watched = found[above].supervised or (found[above].agent in {"yes", "silent"} and _inherits(listed.pid))
        if watched or (_helps(listed, found[above]) and rank_of(above) == rank_of(listed.pid)):
            return replace(listed, part_of=above)
    return replace(listed, refusal=check(listed.pid).refusal)


def _inherits(pid: int) -> bool:
    """Whether it was started with what loads the agent: one that got into the process above it is not passed on."""
    try:
        environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return True
    return b"/agent/bootstrap" in environment


def _helps(listed: Listed, above: Listed) -> bool:
    """Whether it was forked from the process above it, or is one of Python's or PyTorch's own workers."""
    words = " ".join(listed.command)
    return listed.command == above.command or any(name in words for name in _WORKERS)


def _ended(pid: int) -> Optional[Listed]:
    """A program that has ended and whose status nobody has collected; None where its supervisor has gone too."""
    try:
        state = program_state(pid, _ANSWER_SECONDS)
        found = find_program(pid)
    except (ProgramError, MessageError, OSError):
        return None
    if not state.ended:
        return None
    own = os.geteuid() in (0, found.owner)
    start = state.start
    return Listed(pid, _user(found.owner), start.argv, start.started_at, "ended", supervised=True, own=own)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


async def _ask(path: pathlib.Path) -> dict[str, Any]:
    try:
        check_owner(path)
        return await asyncio.wait_for(_conversation(path), _ANSWER_SECONDS)
    except asyncio.TimeoutError:
        return {"agent": "silent"}
    except ConnectionRefusedError:
        return {"agent": "gone"}
    except (AgentError, codec.CodecError):
        return {"agent": "other version"}
    except OSError as error:
        return {"agent": error.strerror or "unreadable"}


async def _conversation(path: pathlib.Path) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(os.fspath(path))
    answer: dict[str, Any] = {"agent": "yes"}
    pid = listener(writer.get_extra_info("socket"))
    if pid is not None:
        answer["pid"] = pid
    try:
        writer.write(codec.encode(Request("hello", PROTOCOL, history=False)))
        splitter = codec.Splitter()
        greeted = False
        while True:
            data = await reader.read(1 << 16)
            if not data:
                return answer
            for body in splitter.feed(data):
                message = codec.decode(body)
                if not greeted:
                    check_greeting(message)
                    greeted = True
                if isinstance(message, Hello):
                    answer["rank"] = message.rank
                elif isinstance(message, Frame):
                    return {**answer, **_held(message)}
    finally:
        writer.close()


def _held(frame: Frame) -> dict[str, Any]:
    # A GPU says more than the host, which every process uses.
    order = sorted(frame.devices, key=lambda device: (device.device != "host", device.reserved_bytes or 0))
    if not order:
        return {}
    fullest = order[-1]
    held = fullest.reserved_bytes if fullest.rss_bytes is None else fullest.rss_bytes
    return {"device": fullest.device, "memory_bytes": held}


def _describe(pid: int) -> Optional[Listed]:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            own = os.geteuid() in (0, process.uids().effective)
            command = tuple(process.cmdline()) or (process.name(),)
            stopped = process.status() == psutil.STATUS_STOPPED
            return Listed(pid, process.username(), command, process.create_time(), "no", own=own, stopped=stopped)
    except (psutil.Error, KeyError):
        return None


def _with_torch(known: set[int]) -> list[int]:
    """Own processes with PyTorch loaded that are not `known`; others' memory maps cannot be read."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in known:
            continue
        try:
            if "python" not in os.readlink(f"/proc/{entry}/exe") or int(entry) == os.getpid():
                continue
            if "/libtorch" in pathlib.Path(f"/proc/{entry}/maps").read_text(errors="replace"):
                found.append(int(entry))
        except OSError:
            continue
    return found


def _on_devices() -> dict[int, tuple[str, Optional[int]]]:
    """Processes on a GPU, by the driver's list: (device, bytes)."""
    from .driver import DriverSource

    source = DriverSource()
    reading = source.read(0)
    source.close()
    found: dict[int, tuple[str, Optional[int]]] = {}
    for device in reading.devices:
        for process in device.others or ():
            found[process.pid] = (f"gpu:{device.index}", process.bytes_held)
    return found


def age_ns(listed: Listed) -> Optional[int]:
    """How long ago it was started."""
    return None if listed.created_s is None else max(0, int((time.time() - listed.created_s) * 1e9))
