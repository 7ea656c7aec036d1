"""Where sockets are: a folder that belongs to one user and nobody else."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat

#: AF_UNIX paths end at 108 bytes; some of it is kept for a temporary name beside the socket.
MAX_SOCKET_PATH_BYTES = 100


class PathError(Exception):
    """The runtime folder or a socket path in it cannot be used; the message says why and what to do."""


def runtime_folders(uid: int | None = None) -> list[pathlib.Path]:
    """Every folder in which sockets of user `uid` (default: this one) may be, the preferred one first.

    More than one, because a login through ssh, sudo and cron see different environments on the same machine.
    """
    own = uid is None or uid == os.geteuid()
    uid = os.geteuid() if uid is None else uid
    found = []
    if own and os.environ.get("MEMTUI_RUNTIME_DIR"):
        return [pathlib.Path(os.environ["MEMTUI_RUNTIME_DIR"])]
    if own and os.environ.get("XDG_RUNTIME_DIR"):
        found.append(pathlib.Path(os.environ["XDG_RUNTIME_DIR"], "memtui"))
    if os.path.isdir(f"/run/user/{uid}"):
        found.append(pathlib.Path(f"/run/user/{uid}/memtui"))
    found.append(pathlib.Path(f"/tmp/memtui-{uid}"))
    return list(dict.fromkeys(found))


def runtime_folder() -> pathlib.Path:
    """The private folder (mode 0700) for new sockets, made if it is not there.

    Raises PathError where no candidate can be made, is writable, and belongs to this user alone.
    """
    reasons = []
    for folder in runtime_folders():
        try:
            return _private(folder)
        except (OSError, PathError) as error:
            reasons.append(f"{folder}: {getattr(error, 'strerror', None) or error}")
    raise PathError(f"no private folder for sockets ({'; '.join(reasons)}); set MEMTUI_RUNTIME_DIR to a folder you own")


def kept_folders() -> list[pathlib.Path]:
    """Folders for what is to be there when its process and its login are gone, the preferred one first."""
    if os.environ.get("MEMTUI_RUNTIME_DIR"):
        return runtime_folders()
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return [*([pathlib.Path(state, "memtui")] if os.path.isabs(state) else []), *runtime_folders()]


def kept_folder() -> pathlib.Path:
    """The first of those that is or can be made private to this user; raises PathError."""
    reasons = []
    for folder in kept_folders():
        try:
            return _private(folder)
        except (OSError, PathError) as error:
            reasons.append(f"{folder}: {getattr(error, 'strerror', None) or error}")
    raise PathError(f"no private folder for files ({'; '.join(reasons)})")


def _private(folder: pathlib.Path) -> pathlib.Path:
    try:
        info = os.lstat(folder)
    except FileNotFoundError:
        os.makedirs(folder.parent, exist_ok=True)
        # 0700 from the start: between a mkdir and a chmod somebody could open it.
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode):
        raise PathError("not a folder")
    if info.st_uid != os.geteuid():
        raise PathError("belongs to another user")
    if info.st_mode & 0o077:
        if not folder.name.startswith("memtui"):
            raise PathError(f"open to others (mode {info.st_mode & 0o7777:o}); chmod 700 it, or choose another")
        os.chmod(folder, 0o700)  # one of ours, opened by a umask or by hand
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PathError("not writable")
    return folder


def check_length(path: pathlib.Path) -> pathlib.Path:
    """The path itself; raises PathError where the kernel could not bind a socket there."""
    size = len(os.fsencode(path))
    if size > MAX_SOCKET_PATH_BYTES:
        raise PathError(
            f"socket path too long ({size} bytes, at most {MAX_SOCKET_PATH_BYTES}): {path}; "
            "set MEMTUI_RUNTIME_DIR to a shorter folder"
        )
    return path


def agent_socket_name(pid: int) -> str:
    """The file name of the agent's socket of process `pid` (as that process sees its own pid)."""
    return f"agent-{pid}.sock"


def agent_socket_path(pid: int) -> pathlib.Path:
    """Where the agent of process `pid` of this user listens; raises PathError."""
    return check_length(runtime_folder() / agent_socket_name(pid))


def run_socket_path(pid: int) -> pathlib.Path:
    """Where the supervisor of program `pid` of this user listens; raises PathError."""
    return check_length(runtime_folder() / f"run-{pid}.sock")


def find_sockets(prefix: str, uid: int | None = None) -> dict[int, pathlib.Path]:
    """Sockets named `PREFIX-PID.sock` of a user, by pid; folders that cannot be read hold none."""
    found: dict[int, pathlib.Path] = {}
    for folder in runtime_folders(uid):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            head, _, rest = name.partition("-")
            number = rest[: -len(".sock")]
            if head == prefix and rest.endswith(".sock") and number.isdigit():
                found.setdefault(int(number), folder / name)
    return found
