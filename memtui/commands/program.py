"""Which program `memtui run` is to start, with what arguments and in what environment."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import sys
import zipfile
from typing import Optional

from memtui.agent import environment
from memtui.cli import CommandError
from memtui.sources.log_reader import is_log
from memtui.wire import paths

from .module import check_module

#: Process ids have up to seven digits.
_LONGEST_PID = 4_194_304
_LOOKED_AT_BYTES = 65_536


def resolve(words: list[str]) -> tuple[list[str], str]:
    """(argument vector, what to call it) of the words after memtui's own; raises CommandError."""
    if words[:1] in ([], [""]):
        raise CommandError(
            "name a program: memtui run train.py, memtui run -m package.module, memtui run -- command", 2
        )
    if words[0] == "--":
        if words[1:2] in ([], [""]):
            raise CommandError("name a command after --", 2)
        check_command(words[1])
        return words[1:], " ".join(words[1:])
    if words[0] == "-m":
        if words[1:2] in ([], [""]):
            raise CommandError("name a module after -m", 2)
        python = interpreter()
        check_module(python, words[1])
        return [python, *words], " ".join(words)
    check_script(words[0])
    return [interpreter(), *words], " ".join(words)


def current_folder() -> str:
    """Where the program is to run; raises CommandError where that is no longer there."""
    try:
        return os.getcwd()
    except OSError as error:
        raise CommandError(f"the current folder cannot be used ({error.strerror}): cd to one that is there") from None


def interpreter() -> str:
    """This Python where it has torch, else the user's `python`: memtui may be installed apart from the training."""
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    own = os.path.dirname(sys.executable)
    for name in ("python", "python3"):
        found = shutil.which(name)
        if found and os.path.dirname(found) != own:
            return found
    return sys.executable


def check_command(name: str) -> None:
    """Raises CommandError where `name` is a folder; all else the system says itself when it is to run it."""
    if os.path.isdir(name) and shutil.which(name) is None:
        way_out = f": memtui run {name}" if os.path.isfile(os.path.join(name, "__main__.py")) else ""
        raise CommandError(f"{name} is a folder, not a command{way_out}", 126)


def check_script(name: str) -> None:
    """Raises CommandError where Python could not run `name`; a folder or archive with `__main__.py` is a program."""
    path = pathlib.Path(name)
    try:
        if path.is_dir():
            if not (path / "__main__.py").is_file():
                raise CommandError(f"{name} is a folder without __main__.py: name a script", 2)
            return
        if path.exists() and not path.is_file():
            return  # a pipe's content can be read once, and Python is to read it
        with path.open("rb") as file:
            head = file.read(_LOOKED_AT_BYTES)
    except FileNotFoundError:
        raise CommandError(f"no such script: {name}", 2) from None
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}", 2) from None
    if path.suffix == ".pyc" or zipfile.is_zipfile(path):
        return
    first = head.split(b"\n", 1)[0]
    if b'"memtui log"' in first and is_log(name):
        raise CommandError(f"{name} is a log, not a script: memtui open {name}", 2)
    if b"\0" in head:
        raise CommandError(
            f"{name} is not a Python script but a binary file; to run a command: memtui run -- {name}", 2
        )
    if first.startswith(b"#!") and b"python" not in first:
        line = first.decode(errors="replace").strip()
        raise CommandError(f"{name} is not Python ({line}); to run a command: memtui run -- {name}", 2)
    if path.suffix not in {".py", ".pyw", ""}:
        _check_syntax(name, head)


def _check_syntax(name: str, head: bytes) -> None:
    # Of a .py file Python itself says best what is wrong with it; this is for data and notes given by mistake.
    try:
        compile(head, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        if len(head) < _LOOKED_AT_BYTES:
            line = getattr(error, "lineno", None)
            where = f", line {line}" if line else ""
            raise CommandError(f"{name} is not Python{where}: {getattr(error, 'msg', error)}", 2) from None


def with_agent(
    *, exact_peaks: bool = False, rehearsal: Optional[int] = None, host_bytes: Optional[int] = None
) -> dict[str, str]:
    """This environment, with the agent in every Python started under it; raises CommandError where no socket can be."""
    try:
        folder = paths.runtime_folder()
        paths.check_length(folder / paths.agent_socket_name(_LONGEST_PID))
    except paths.PathError as error:
        raise CommandError(str(error)) from None
    return environment(dict(os.environ), exact_peaks=exact_peaks, rehearsal=rehearsal, host_bytes=host_bytes)
