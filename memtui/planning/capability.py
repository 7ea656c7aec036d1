"""Which way of throwing a program's writes away works here, found by trying it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from memtui.planning.layer import wanted_paths
from memtui.planning.request import REPORT_NAME, REQUEST_NAME, Report, Request
from memtui.planning.scratch import make_scratch, remove_scratch, scratch_bases

_INSIDE = Path(__file__).with_name("inside.py")

#: A trial takes a second or two; a network file system that does not answer takes for ever.
_TRIAL_SECONDS = 60

#: Overlays in a user's namespace came with 5.11.
_OLDEST_KERNEL = (5, 11)


@dataclass(frozen=True)
class Capability:
    """What can be done for a program started in one folder.

    `layered`: all its writes are caught; otherwise it gets a copy of the folder. `network_off`: it gets a network
    of its own. `base` is where scratch folders go. `cwd_copied`: the folder cannot take a layer's writes, a copy
    of it is shown there. `read_only` and `exposed` are folders that are, inside, not to be written to, and not
    protected. `problem` and `fix` say why it is not all of that, "" where it is.
    """

    layered: bool
    network_off: bool
    base: Path
    cwd_copied: bool = False
    read_only: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    problem: str = ""
    fix: str = ""

    def line(self) -> str:
        """One line for the user."""
        if self.layered:
            return "what the program writes is thrown away, and it has no network"
        covered = "only its folder is protected, by a copy" + (", and it has no network" if self.network_off else "")
        return f"{covered}: {self.problem} ({self.fix})"


def inside_command(scratch: Path) -> list[str]:
    """What does the request in `scratch`, by this Python, with nothing of the user's settings for Python."""
    return [sys.executable, "-I", "-S", str(_INSIDE), str(scratch)]


def probe(cwd: str, environment: Optional[dict[str, str]] = None, base: Optional[Path] = None) -> Capability:
    """Try it, for a program to be started in `cwd`; takes a second or two. Nothing is left of the trial.

    `base`, where scratch folders go, is chosen where it is not given.  Raises OSError where there is no place.
    """
    wanted = wanted_paths(cwd, dict(os.environ) if environment is None else environment)
    bases = scratch_bases() if base is None else [base]
    if not bases:
        raise FileNotFoundError("no folder for what is thrown away: neither the temporary folder nor /dev/shm")
    report = Report()
    for place in bases:
        report = _try(Request(cwd=cwd, layered=True, wanted=wanted), place)
        if not report.failed_step:
            return _layered(report, place, cwd)
        if report.failed_step == "namespaces":
            return Capability(False, False, bases[0], problem=_problem(report), fix=_fix(report))
    bare = _try(Request(cwd=cwd, layered=False), bases[0])
    return Capability(False, not bare.failed_step, bases[0], problem=_problem(report), fix=_fix(report))


def _layered(report: Report, base: Path, cwd: str) -> Capability:
    unwritable = not report.cwd_writable or (report.own_ids_only and _holds_foreign(cwd))
    return Capability(
        layered=True,
        network_off=True,
        base=base,
        cwd_copied=unwritable and os.access(cwd, os.W_OK),
        read_only=tuple(report.read_only),
        exposed=tuple(report.exposed),
    )


def _holds_foreign(cwd: str) -> bool:
    """Whether the user can change something here that a layer cannot: of another owner or group, as projects have."""
    own = (os.geteuid(), os.getegid())
    with os.scandir(cwd) as entries:
        for entry in entries:
            info = entry.stat(follow_symlinks=False)
            if (info.st_uid, info.st_gid) != own and not entry.is_symlink() and os.access(entry.path, os.W_OK):
                return True
    return False


def _try(request: Request, base: Path) -> Report:
    scratch = make_scratch(base)
    try:
        (scratch / REQUEST_NAME).write_text(request.to_json(), encoding="utf-8")
        done = subprocess.run(
            inside_command(scratch), capture_output=True, text=True, timeout=_TRIAL_SECONDS, check=False
        )
        try:
            return Report.from_json((scratch / REPORT_NAME).read_text(encoding="utf-8"))
        except FileNotFoundError:
            last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            return Report(failed_step="namespaces", reason=last[0])
    except subprocess.TimeoutExpired:
        return Report(failed_step="namespaces", reason=f"no answer in {_TRIAL_SECONDS} s")
    finally:
        remove_scratch(scratch)


def _problem(report: Report) -> str:
    what = {"namespaces": "no namespaces for users here", "scratch": "no layer over files here"}
    return f"{what.get(report.failed_step, report.failed_step)}: {report.reason}"


_SETTINGS = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("user/max_user_namespaces", "0", "15000"),
    ("user/max_mnt_namespaces", "0", "15000"),
    ("user/max_net_namespaces", "0", "15000"),
)


def _fix(report: Report) -> str:
    for name, bad, good in _SETTINGS:
        if _read(f"/proc/sys/{name}") == bad:
            return f"allow it: sudo sysctl {name.replace('/', '.')}={good}"
    if "Seccomp:\t2" in _read("/proc/self/status"):
        return "start the container with --security-opt seccomp=unconfined"
    release = os.uname().release
    if report.failed_step == "scratch" and _version(release) < _OLDEST_KERNEL:
        return f"it takes Linux 5.11, this is {release}"
    if report.failed_step == "scratch":
        return "set TMPDIR to a folder on a local disk"
    return "ask whoever runs this machine to allow user namespaces"


def _version(release: str) -> tuple[int, ...]:
    numbers = release.split("-", maxsplit=1)[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
