"""Runs a program on virtual GPUs, watches it until enough was seen, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Optional

from memtui.session.session import Session
from memtui.sources.monitor import Monitor
from memtui.sources.program import ExitStatus
from memtui.sources.program_end import kill_program
from memtui.sources.program_launch import launch
from memtui.virtual_gpu import environment
from memtui.virtual_gpu.profile import Profile
from memtui.virtual_gpu.report_file import ESTIMATED, REFUSED, Note, ProcessReport, read_reports
from memtui.wire import paths

from .capability import Capability
from .host_memory import HostMemory
from .ranks import Ranks
from .throwaway import Throwaway, throwaway
from .trial import DeviceTrial, Ending, HostUse, Trial
from .watch import Watch, activations, composition, host_parameters, out_of_memory, step_peaks

#: Of the program's output, what is kept to tell why it failed.
_OUTPUT_BYTES = 16_384
_LOOK_SECONDS = 0.2
#: A supervisor is for nobody else: it goes when its program's end was told, and where nobody is there to be told.
_GRACE_SECONDS, _KEPT_SECONDS = 0.5, 60.0
#: A line of a traceback's end, also behind a launcher's "[rank0]: ".
_EXCEPTION = re.compile(r"^(?:\[\w+\]: ?)?((?:\w+\.)*\w*(?:Error|Exception)\b:? ?.*)$")
_OOM_NAMES = frozenset({"OutOfMemoryError"})

Progress = Callable[[Session], None]


class Rehearsal:
    """One way of running a program: what is run, where, with which environment and with what protection."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        capability: Capability,
        *,
        torch_location: Optional[Path] = None,
        keep: bool = False,
        steps: Optional[int] = None,
        host: HostMemory,
    ) -> None:
        self._argv, self._cwd, self._env, self._capability = list(argv), cwd, dict(env), capability
        self._torch, self._keep, self._steps, self._host = torch_location, keep, steps, host

    async def run(
        self,
        profile: Profile,
        *,
        argv: Optional[Sequence[str]] = None,
        extra: Optional[Mapping[str, str]] = None,
        progress: Progress = lambda session: None,
        beside: bool = False,
    ) -> Trial:
        """Tries it on these virtual GPUs, with `argv` in the place of the usual one and `extra` in the environment.
        Where the host's memory runs short, one that runs `beside` another is the first to be ended.

        Raises VirtualGpuError, LaunchFailed, PlanningError, OSError where it cannot be started. Cancelling it ends
        the program, and gives what was seen until then.
        """
        reports = Path(tempfile.mkdtemp(prefix="memtui-plan-"))
        try:
            env = environment(
                replace(profile, report_file=reports / "report"), self._torch, base={**self._env, **(extra or {})}
            )
            shared = [reports, Path(env["VGPU_SHM"]).parent, paths.runtime_folder()]
            with (
                throwaway(
                    list(argv or self._argv), self._cwd, env, self._capability, writable=shared, keep=self._keep
                ) as run,
                tempfile.TemporaryFile() as output,
            ):
                return await self._watched(run, output, reports / "report", progress, beside)
        finally:
            shutil.rmtree(reports, ignore_errors=True)

    async def _watched(self, run: Throwaway, output: BinaryIO, prefix: Path, progress: Progress, beside: bool) -> Trial:
        with open(os.devnull, "rb") as null:
            streams = (null.fileno(), output.fileno(), output.fileno())
            start = launch(
                run.command,
                run.environment,
                run.cwd,
                pty=False,
                stdio=streams,
                keep_seconds=_KEPT_SECONDS,
                grace_seconds=_GRACE_SECONDS,
            )
        begun = time.monotonic_ns()
        watch = Watch(self._steps)
        monitor = Monitor(start.pid, supervised=True, collect=False)
        reason, taken = "", None

        def too_much() -> bool:
            nonlocal taken
            taken = self._host.taken_too_much(start.pid, first_to_go=beside)
            return taken is not None

        try:
            reason = await _until_enough(monitor, watch, Ranks(prefix), progress, too_much)
        except asyncio.CancelledError:
            reason = "interrupted"
        finally:
            status = kill_program(start)
            with contextlib.suppress(asyncio.CancelledError):
                await monitor.stop()
        duration, reports = time.monotonic_ns() - begun, read_reports(prefix)
        _remove_sockets({start.pid, *(report.pid for report in reports)})
        trial = _trial(monitor.session, watch, reason, status, reports, duration, run, _tail(output))
        parameters, kept = host_parameters(monitor.session)
        return replace(trial, host=HostUse(self._host.available_bytes, parameters, kept, taken))


def _remove_sockets(pids: set[int]) -> None:
    """Those of agents that were killed with their programs."""
    folder = paths.runtime_folder()
    for pid in pids:
        if not os.path.exists(f"/proc/{pid}"):
            with contextlib.suppress(OSError):
                (folder / paths.agent_socket_name(pid)).unlink()


async def _until_enough(
    monitor: Monitor, watch: Watch, ranks: Ranks, progress: Progress, too_much: Callable[[], bool]
) -> str:
    """Why it was ended; empty where it came to its own end."""
    enough = asyncio.Event()
    found: list[str] = []

    def look() -> None:
        watch.look(monitor.session)
        reason = watch.enough(monitor.session)
        if reason and not found:
            found.append(reason)
            enough.set()

    monitor.on_change = look
    await monitor.start()
    seen, end = asyncio.ensure_future(enough.wait()), asyncio.ensure_future(monitor.ended())
    try:
        while not end.done() and not (seen.done() and ranks.level(monitor.session, time.monotonic_ns())):
            awaited = {end} if seen.done() else {seen, end}
            await asyncio.wait(awaited, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            ranks.look(time.monotonic_ns())
            progress(monitor.session)
            if too_much():
                return "host memory"
    finally:
        for task in (seen, end):
            task.cancel()
    return found[0] if found else ""


def _trial(
    session: Session,
    watch: Watch,
    reason: str,
    status: Optional[ExitStatus],
    reports: tuple[ProcessReport, ...],
    duration_ns: int,
    run: Throwaway,
    output: str,
) -> Trial:
    devices = tuple(_device(session, watch, reports, name) for name in sorted(_names(watch, reports)))
    error = _error(session)
    if not error and status is not None and status.shell_code:
        error = _last_line(output) or str(status)
    code = None if status is None else status.shell_code
    ending: Ending
    if status is not None:
        reason = ""  # by then it had come to its own end
    if reason in ("steps", "steady", "interrupted", "host memory", "rising"):
        ending = reason  # type: ignore[assignment]  # one of these
    elif (
        (session.end is not None and session.end.exception in _OOM_NAMES)
        or _says_oom(output, code)
        or _ended_by_oom(session)
    ):
        ending = "out of memory"
    else:
        ending = "failed" if code else "exit"
    return Trial(
        ended=ending,
        exit_status=code,
        error=error,
        steps=0 if session.frame is None else session.frame.step,
        duration_ns=duration_ns,
        devices=devices,
        notes=_notes(reports),
        host_reads=tuple(read for each in reports for read in each.host_reads),
        warnings=tuple(run.warnings),
        output=output,
    )


def _names(watch: Watch, reports: tuple[ProcessReport, ...]) -> set[str]:
    return {*watch.allocated, *(f"cuda:{device.index}" for report in reports for device in report.devices)}


def _device(session: Session, watch: Watch, reports: tuple[ProcessReport, ...], name: str) -> DeviceTrial:
    held = [device for each in reports for device in each.devices if f"cuda:{device.index}" == name]
    steps = step_peaks(session, name)
    highest = max(steps, key=lambda peak: peak.bytes_held, default=None)
    made_of = composition(session, name, highest)
    if highest is not None and made_of is not None and made_of.at_peak:
        # Of several that are as high, the one that was recorded.
        highest = next(
            (each for each in steps if each.step == made_of.step and each.bytes_held >= highest.bytes_held), highest
        )
    return DeviceTrial(
        device=name,
        usable_bytes=max((device.usable_bytes for device in held), default=None),
        context_bytes=max((device.context_bytes for device in held), default=None),
        peak_allocated_bytes=watch.allocated.get(name),
        peak_reserved_bytes=watch.reserved.get(name),
        peak_device_bytes=max((device.device_peak_bytes for device in held), default=None),
        peak=highest,
        steps=steps,
        composition=made_of,
        num_alloc_retries=watch.retries.get(name, 0),
        oom=out_of_memory(session, name),
        activations=activations(session, name),
    )


def _notes(reports: tuple[ProcessReport, ...]) -> tuple[Note, ...]:
    """Of all processes together, without those of values that were read."""
    counts: dict[tuple[str, str], int] = {}
    for report in reports:
        for note in report.notes:
            if note.kind in (ESTIMATED, REFUSED):
                counts[note.kind, note.name] = counts.get((note.kind, note.name), 0) + note.count
    return tuple(Note(kind, name, count) for (kind, name), count in sorted(counts.items()))


def _error(session: Session) -> str:
    end = session.end
    if end is None or not end.exception:
        return ""
    first = end.text.strip().splitlines()[0] if end.text.strip() else ""
    return f"{end.exception}: {first}" if first else end.exception


def _last_line(output: str) -> str:
    """The last that names an exception, but for a launcher's, which only says that a rank failed; else the last."""
    said = [line.strip()[:300] for line in output.splitlines() if line.strip()]
    named = [match[1] for match in map(_EXCEPTION.search, said) if match and "ChildFailedError" not in match[1]]
    return (named or said or [""])[-1]


def _ended_by_oom(session: Session) -> bool:
    """Whether the program, having caught the error, made no step any more."""
    ooms = [event.step for event in session.events if event.name == "oom"]
    return bool(ooms) and session.frame is not None and session.frame.step <= max(ooms)


def _says_oom(output: str, code: Optional[int]) -> bool:
    # Of a launcher's rank the launcher tells; of one that was killed at once nobody else.
    return bool(code) and "OutOfMemoryError" in output


def _tail(output: BinaryIO) -> str:
    output.seek(0, os.SEEK_END)
    output.seek(max(0, output.tell() - _OUTPUT_BYTES))
    return output.read().decode(errors="replace")
