"""The file through which the processes of one launch see each other's device memory."""

from __future__ import annotations

import atexit
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_STALE_SECONDS = 24 * 3600


def create_usage_file() -> Path:
    """Make an empty file that only this user can open; it goes when this process ends.

    A program that replaces this process (`exec`) keeps it: a later launch removes it then, a day
    after the last process that knew it.
    """
    folder = _private_folder()
    _sweep(folder)
    descriptor, name = tempfile.mkstemp(prefix=f"{os.getpid()}-", suffix=".usage", dir=folder)
    os.close(descriptor)
    atexit.register(_remove, name, os.getpid())
    return Path(name)


def _private_folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    base = runtime if runtime and os.access(runtime, os.W_OK | os.X_OK) else tempfile.gettempdir()
    folder = Path(base) / f"memtui-virtual-gpu-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    # In /tmp anybody may have made the name before us.
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
        return folder
    return Path(tempfile.mkdtemp(prefix="memtui-virtual-gpu-"))


def _remove(name: str, creator: int) -> None:
    # A forked child runs its parent's exit handlers too.
    if os.getpid() == creator:
        with suppress(OSError):
            os.unlink(name)


def _sweep(folder: Path) -> None:
    """Remove what launches of long ago left behind."""
    now = time.time()
    for file in folder.glob("*-*.usage"):
        with suppress(OSError, ValueError):
            creator = int(file.name.partition("-")[0])
            if now - file.stat().st_mtime > _STALE_SECONDS and not _is_alive(creator):
                file.unlink()


def _is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
