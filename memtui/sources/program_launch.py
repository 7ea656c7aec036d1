"""Starting a program under a supervisor of its own."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence

import memtui.supervisor
from memtui.sources.program import LaunchFailed, ProgramStart, TerminalSize
from memtui.supervisor.request import StartReport, StartRequest

#: What the output tab emulates; the terminal memtui itself runs in may be anything.
TERMINAL_TYPE = "xterm-256color"

#: Until the viewer knows its window.
DEFAULT_SIZE = TerminalSize(80, 24)

_WHAT = {
    "command": "cannot run {argv[0]}",
    "folder": "cannot enter {cwd}",
    "terminal": "no pseudo-terminal to be had",
    "socket": "no socket for viewers",
    "fork": "cannot start a process",
}


def launch(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    *,
    pty: bool,
    size: TerminalSize = DEFAULT_SIZE,
    direct_pid_variable: str | None = "MEMTUI_DIRECT",
    stdio: Sequence[int] = (0, 1, 2),
    **limits: float,
) -> ProgramStart:
    """Start `argv` with exactly `env`, under a supervisor that outlives this process. Takes some 50 ms.

    With `pty` it gets a terminal of `size`, of type TERMINAL_TYPE; without, the descriptors `stdio` as they are.
    `limits` are StartRequest's (ring_bytes, keep_seconds, check_seconds, grace_seconds). Raises LaunchFailed.
    """
    env = dict(env)
    if pty:
        env["TERM"] = TERMINAL_TYPE
        # They would tell the size of another window.
        env.pop("LINES", None)
        env.pop("COLUMNS", None)
    streams = [] if pty else [_duplicate(descriptor) for descriptor in stdio]
    inherited = _inheritable()
    request = StartRequest(
        argv=list(argv),
        env=env,
        cwd=cwd,
        pty=pty,
        columns=max(1, size.columns),
        rows=max(1, size.rows),
        stdio=streams,
        inherited=inherited,
        direct_pid_variable=direct_pid_variable,
        **limits,  # type: ignore[arg-type]  # ring_bytes is the one integer among them
    )
    try:
        report = _start_supervisor(request)
    finally:
        for descriptor in streams:
            if descriptor >= 0:
                os.close(descriptor)
    if report.failed_step:
        what = _WHAT.get(report.failed_step, report.failed_step).format(argv=list(argv), cwd=cwd)
        raise LaunchFailed(f"{what}: {report.reason}", report.errno)
    return ProgramStart(
        pid=report.pid,
        supervisor_pid=report.supervisor_pid,
        argv=tuple(argv),
        cwd=cwd,
        started_at=report.started_at,
        pty=pty,
    )


def _start_supervisor(request: StartRequest) -> StartReport:
    script = pathlib.Path(memtui.supervisor.__file__).with_name("__main__.py")
    # Isolated and without site: nothing of the user's environment can delay or break it. The program's name is
    # there for those who read a process list.
    command = [sys.executable, "-I", "-S", os.fspath(script), *request.argv[:1]]
    descriptors = [*(descriptor for descriptor in request.stdio if descriptor >= 0), *request.inherited]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=descriptors,
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchFailed(f"cannot start {sys.executable}: {error.strerror}", error.errno) from error
    document, complaint = process.communicate(request.to_json())
    try:
        return StartReport.from_json(document)
    except (ValueError, TypeError) as error:
        last = complaint.decode(errors="replace").strip().splitlines()
        raise LaunchFailed(f"the supervisor failed: {last[-1] if last else 'it ended without a word'}") from error


def _duplicate(descriptor: int) -> int:
    try:
        return os.dup(descriptor)
    except OSError:
        return -1  # the caller has it closed, and the program is to find it closed


def _inheritable() -> list[int]:
    """Descriptors above 2 that whoever started this process meant to be inherited (Python's own never are)."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if descriptor > 2 and os.get_inheritable(descriptor):
                found.append(descriptor)
        except OSError:
            continue  # the one that listed the folder
    return found
