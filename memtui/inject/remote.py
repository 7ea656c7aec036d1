"""Python 3.14's own way in: `sys.remote_exec`, called by the target's own interpreter."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from .errors import InjectError
from .process import Facts
from .reach import is_elsewhere, reached
from .words import last_line

_SECONDS = 20.0
_CODE = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
_NOTHING = b"pass\n"


class Script:
    """A file in the target's file system that its main thread runs when it returns to Python."""

    def __init__(self, facts: Facts, text: bytes) -> None:
        """Asks for it to be run; raises InjectError."""
        self._facts = facts
        # It has to be read by the target as its own user. It goes with this object.
        self._inner = pathlib.Path("/tmp")
        try:
            self._outer = self._made(text)
            self._ask()
        except OSError as error:
            raise InjectError(f"no file for it in the process's /tmp: {error.strerror}") from error
        except InjectError:
            self.remove()
            raise

    def _made(self, text: bytes) -> pathlib.Path:
        folder = reached(self._facts, self._inner)
        if folder.is_symlink():
            # Seen from here it could lead anywhere.
            raise InjectError("the process's /tmp is a symbolic link: no file for it is put there")
        descriptor, name = tempfile.mkstemp(prefix="memtui-", suffix=".py", dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            if os.geteuid() == 0:
                os.fchown(descriptor, self._facts.uid, -1)
            file.write(text)
        return pathlib.Path(name)

    def _ask(self) -> None:
        facts = self._facts
        inner = self._inner / self._outer.name
        command = [f"/proc/{facts.pid}/exe", "-I", "-S", "-c", _CODE, str(facts.pid), str(inner)]
        if facts.nested_pids or is_elsewhere(facts):
            enter = shutil.which("nsenter")
            if enter is None:
                raise InjectError("nsenter is not installed, and the process is in a container: apt install util-linux")
            # Its libraries are found in its own file system, its pid in its own namespace.
            command[5] = str(facts.inner_pid)
            command[0] = self._executable()
            command = [enter, "-t", str(facts.pid), "-m", "-p", "-r", "--", *command]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InjectError(f"its own interpreter could not be run: {error}") from error
        if done.returncode:
            raise InjectError(f"sys.remote_exec: {last_line(done.stderr.decode(errors='replace'))}")

    def _executable(self) -> str:
        # As the process sees it: one whose root is a folder of its mount namespace (chroot) knows less of the path.
        executable = os.readlink(f"/proc/{self._facts.pid}/exe")
        root = os.readlink(f"/proc/{self._facts.pid}/root").rstrip("/")
        return executable[len(root) :] if executable.startswith(f"{root}/") else executable

    def cancel(self) -> None:
        """It is run all the same, and does nothing."""
        # Not removed: the target would complain into the program's output.
        with contextlib.suppress(OSError):
            self._outer.write_bytes(_NOTHING)

    def remove(self) -> None:
        """Once it has run."""
        with contextlib.suppress(OSError, AttributeError):
            self._outer.unlink()
