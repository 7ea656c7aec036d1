"""Running a command so that nothing it does is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Optional

from memtui.analysis.units import size as size_text
from memtui.planning.capability import Capability, inside_command
from memtui.planning.errors import PlanningError
from memtui.planning.folder_copy import FolderCopy, copy_folder
from memtui.planning.layer import wanted_paths
from memtui.planning.leftovers import MARK, kill_leftovers
from memtui.planning.offline import offline_variables
from memtui.planning.request import REPORT_NAME, REQUEST_NAME, Report, Request
from memtui.planning.scratch import make_scratch, measure, remove_scratch

#: Libraries to load are for the program, not for what prepares it.
_FOR_THE_PROGRAM = ("LD_PRELOAD",)

#: What a program can write to in the scratch folder.
_WRITTEN_TO = ("layers", "cwd", "tmp", "mlruns")

#: Files that a copy lacks and that are shown all the same: each costs a mount.
_MAX_SHOWN = 256


@dataclass(frozen=True)
class Discarded:
    """What was thrown away, and the processes that had stayed behind and were killed."""

    files: int
    total_bytes: int
    killed: tuple[int, ...]


class Throwaway:
    """A command, and the environment and folder to start it with, in place of the caller's own.

    The process started becomes the program: its pid, signals, process group and exit status are the program's.
    Closing ends what still runs of it, and removes all it wrote.
    """

    def __init__(
        self, command: Sequence[str], cwd: str, environment: Mapping[str, str], scratch: Optional[Path] = None
    ) -> None:
        self.command = list(command)
        self.cwd = cwd
        self.environment = dict(environment)
        self.warnings: list[str] = []
        self.discarded: Optional[Discarded] = None
        self._scratch = scratch
        self._ready_ns = time.time_ns()

    def report(self) -> Optional[Report]:
        """What was done for the program, once it is started in a layer; `None` before, and without one."""
        if self._scratch is None:
            return None
        try:
            return Report.from_json((self._scratch / REPORT_NAME).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """End what is left and remove what was written; `discarded` says what it was. Raises OSError."""
        if self._scratch is None or self.discarded is not None:
            return
        killed = kill_leftovers(str(self._scratch))
        written = measure([self._scratch / name for name in _WRITTEN_TO], self._ready_ns)
        remove_scratch(self._scratch)
        self.discarded = Discarded(written.files, written.total_bytes, tuple(killed))

    def __enter__(self) -> Throwaway:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


def throwaway(
    command: Sequence[str],
    cwd: str,
    environment: Mapping[str, str],
    capability: Capability,
    *,
    writable: Sequence[Path] = (),
    linked: Sequence[str] = (),
    keep: bool = False,
) -> Throwaway:
    """How to run `command` in `cwd` with nothing kept but what it does in `writable`; with `keep`, as it is.

    `linked`: paths in `cwd` that a copy of it links to rather than copies, as they are only read. Raises
    PlanningError for a `writable` path that does not exist or a `cwd` that cannot be copied, OSError where the
    scratch folder cannot be filled.
    """
    if keep:
        kept = Throwaway(command, cwd, environment)
        kept.warnings.append("what the program writes and sends is kept")
        return kept
    for path in writable:
        if not path.exists():
            raise PlanningError(f"{path} is to be shared and does not exist", "make it first")
    if os.path.realpath(cwd) == "/" and (capability.cwd_copied or not capability.layered):
        raise PlanningError("a program started in / would write to /", "start it in a folder of its own")
    scratch = make_scratch(capability.base)
    try:
        run = Throwaway(command, cwd, environment, scratch)
        (_use_layer if capability.layered else _use_copy)(run, scratch, capability, writable, linked)
    except BaseException:
        remove_scratch(scratch)
        raise
    run._ready_ns = time.time_ns()
    return run


def _use_layer(
    run: Throwaway, scratch: Path, capability: Capability, writable: Sequence[Path], linked: Sequence[str]
) -> None:
    over, read_only = [], []
    if capability.cwd_copied:
        real, copy = os.path.realpath(run.cwd), str(scratch / "cwd")
        copied = copy_folder(real, copy, linked=linked, links=False)  # they would lead to themselves
        big = [(path, size) for path, size in copied.left_out if size is not None][:_MAX_SHOWN]
        copied.left_out = [item for item in copied.left_out if item not in big]
        run.warnings.append(
            f"{run.cwd} is a copy for the program: not all in it is of your user and group, or something is "
            "mounted there" + (f"; read-only in it: {_listed(big)}" if big else "")
        )
        run.warnings += _words_on(copied, run.cwd)
        over.append((copy, real))
        read_only = [os.path.join(real, path) for path in (*copied.linked, *(path for path, _ in big))]
    run.warnings += (f"{folder} is read-only for the program" for folder in capability.read_only)
    run.warnings += (f"what the program writes to {folder} is kept" for folder in capability.exposed)
    # The scratch folder is not to be seen inside; the temporary folder is in the layer.
    run.environment.update(offline_variables(Path(_temporary_folder(run.environment))))
    wanted = wanted_paths(run.cwd, run.environment)
    shared = [os.path.realpath(path) for path in writable]
    _put_inside(run, scratch, Request(run.cwd, True, shared=shared, read_only=read_only, over=over, wanted=wanted))


def _use_copy(
    run: Throwaway, scratch: Path, capability: Capability, writable: Sequence[Path], linked: Sequence[str]
) -> None:
    copy, temporary = scratch / "cwd", scratch / "tmp"
    temporary.mkdir()
    run.warnings.append(f"what the program writes outside its folder is kept: {capability.problem} ({capability.fix})")
    if not capability.network_off:
        run.warnings.append("the network is there: trackers and hubs are told to stay offline, the rest is not stopped")
    run.warnings += _words_on(copy_folder(run.cwd, str(copy), linked=linked), run.cwd)
    run.command = [_moved(argument, run.cwd, copy) for argument in run.command]
    run.cwd = str(copy)
    run.environment.update(offline_variables(scratch))
    run.environment.update(dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(temporary)))
    run.environment.update(PWD=str(copy), PYTHONDONTWRITEBYTECODE="1")
    if capability.network_off:
        _put_inside(run, scratch, Request(run.cwd, False))
    else:
        run.environment[MARK] = str(scratch)


def _put_inside(run: Throwaway, scratch: Path, request: Request) -> None:
    variables = {name: run.environment.pop(name) for name in _FOR_THE_PROGRAM if name in run.environment}
    whole = replace(request, command=run.command, variables=variables)
    (scratch / REQUEST_NAME).write_text(whole.to_json(), encoding="utf-8")
    run.environment[MARK] = str(scratch)
    run.command = inside_command(scratch)


def _moved(argument: str, cwd: str, copy: Path) -> str:
    """An argument that names something in the folder by its whole path, as it is in the copy."""
    for folder in (cwd, os.path.realpath(cwd)):
        if argument.startswith(folder + "/"):
            inside = copy / argument[len(folder) + 1 :]
            if os.path.lexists(inside):
                return str(inside)
    return argument


def _words_on(copy: FolderCopy, cwd: str) -> list[str]:
    words = []
    if copy.left_out:
        words.append(f"not in the copy of {cwd}: {_listed(copy.left_out)}")
    if copy.outward:
        words.append(f"links in {cwd} lead out of it: {', '.join(copy.outward[:3])}")
    return words


def _listed(paths: Sequence[tuple[str, Optional[int]]]) -> str:
    first = ", ".join(path if size is None else f"{path} ({size_text(size)})" for path, size in paths[:3])
    return first + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _temporary_folder(environment: Mapping[str, str]) -> str:
    named = environment.get("TMPDIR", "")
    return named if os.path.isabs(named) else "/tmp"
