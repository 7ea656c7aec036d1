"""Run by path, in the process that becomes the program: puts itself into a layer, and executes the program there."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile

if not __package__:  # in isolated mode nothing of the installation is on sys.path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from memtui.planning import layer, namespaces, system
from memtui.planning.request import CANNOT_RUN, NOT_FOUND, REPORT_NAME, REQUEST_NAME, Report, Request

_FOUND_HERE_ONLY = "hosts: files\n"


def main() -> int:
    """Do the request in the scratch folder that the first argument names; returns only where nothing is to be run."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    folder = sys.argv[1]
    with open(os.path.join(folder, REQUEST_NAME), encoding="utf-8") as file:
        request = Request.from_json(file.read())
    try:
        everybody = namespaces.enter_namespaces()
        system.mount(None, "/", None, system.RECURSIVE | system.RECEIVE_ONLY)
        # Not before: what was opened outside cannot be mounted inside.
        scratch = layer.Scratch(folder)
    except OSError as error:
        report, place = _failed("namespaces", error), folder
    else:
        report, place = _prepare(request, scratch), scratch.at()
        report.own_ids_only = not everybody
    _tell(report, place)
    if not request.command:
        return 0
    if report.failed_step:
        return _complain(f"nothing was run, as its writes could not be caught: {report.failed_step}: {report.reason}")
    return _execute(request)


def _prepare(request: Request, scratch: layer.Scratch) -> Report:
    report, step = Report(), "network"
    try:
        _leave_network(scratch)
        if request.layered:
            step = "scratch"
            if not request.command:
                layer.check_scratch(scratch)
            step = "layers"
            report = layer.lay(scratch, request)
        step = "network"
        _resolve_own_name_only(scratch)
        step = "folder"
        os.chdir(request.cwd)
        report.cwd_writable = request.layered and not request.command and _can_write_here()
    except OSError as error:
        return _failed(step, error)
    return report


def _failed(step: str, error: OSError) -> Report:
    reason = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return Report(failed_step=step, errno=error.errno or 0, reason=reason)


def _leave_network(scratch: layer.Scratch) -> None:
    system.raise_loopback()
    host = socket.gethostname()
    with open(scratch.at("hosts"), "w", encoding="utf-8") as file:
        file.write(f"127.0.0.1 localhost {host}\n::1 localhost\n")
    with contextlib.suppress(FileNotFoundError), open("/etc/nsswitch.conf", encoding="utf-8", errors="replace") as file:
        lines = [line for line in file if not line.lstrip().startswith("hosts:")]
        with open(scratch.at("nsswitch"), "w", encoding="utf-8") as changed:
            changed.writelines([*lines, _FOUND_HERE_ONLY])


def _resolve_own_name_only(scratch: layer.Scratch) -> None:
    """Names of other machines fail at once, rather than after a resolver's patience; this one's is 127.0.0.1."""
    for name, path in (("hosts", "/etc/hosts"), ("nsswitch", "/etc/nsswitch.conf")):
        if os.path.exists(scratch.at(name)) and os.path.exists(path):
            system.mount(scratch.at(name), path, None, system.BIND)


def _can_write_here() -> bool:
    try:
        with tempfile.NamedTemporaryFile(dir="."):
            return True
    except OSError:
        return False


def _tell(report: Report, folder: str) -> None:
    path = os.path.join(folder, REPORT_NAME)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(report.to_json())
    os.rename(path + ".new", path)  # whoever sees it sees all of it


def _execute(request: Request) -> int:
    environment = {**os.environ, **request.variables}
    # Python ignores these from its start, and what is ignored stays so.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    program = shutil.which(request.command[0], path=environment.get("PATH"))
    if program is None and not os.path.exists(request.command[0]):
        return _complain(f"there is no command {request.command[0]}", NOT_FOUND)
    try:
        os.execve(program or request.command[0], request.command, environment)
    except OSError as error:
        return _complain(f"cannot run {request.command[0]}: {error.strerror}")


def _complain(text: str, status: int = CANNOT_RUN) -> int:
    print(f"memtui: {text}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
