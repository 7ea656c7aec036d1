"""A layer over the whole file system, seen by this process and its children only."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence

from memtui.planning import system
from memtui.planning.mounts import Layer, Mount, choose_layers, read_mounts
from memtui.planning.request import Report, Request

SHARED_MEMORY = "/dev/shm"

#: Through sockets here the C library finds users; a layer hides sockets, and names with them.
_USER_LOOKUPS = ("/var/lib/sss/pipes", "/run/nscd", "/var/run/nscd", "/run/systemd/userdb")

_FLAGS = {"nosuid": system.NO_SUID, "nodev": system.NO_DEVICES, "noexec": system.NO_EXEC}


class Scratch:
    """The scratch folder, as a mount of its own that stays writable, reached through a descriptor: layers cover it."""

    def __init__(self, path: str) -> None:
        self.path = path
        system.mount(path, path, None, system.BIND)
        self._descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY)

    def at(self, *names: str) -> str:
        return "/".join((f"/proc/self/fd/{self._descriptor}", *names))

    def make(self, *names: str) -> str:
        path = self.at(*names)
        os.makedirs(path, exist_ok=True)
        return path


def check_scratch(scratch: Scratch) -> None:
    """Try what a layer needs of the file system it writes to. Raises OSError."""
    lower, merged = scratch.make("trial", "lower", "folder"), scratch.make("trial", "merged")
    with open(lower + "/old", "w", encoding="ascii"):
        pass
    _cover(os.path.dirname(lower), merged, scratch, "trial")
    os.unlink(merged + "/folder/old")
    os.rmdir(merged + "/folder")
    os.mkdir(merged + "/folder")  # needs an attribute that some file systems do not keep
    if os.listdir(merged + "/folder"):
        raise OSError(errno.ENOTSUP, "a removed folder comes back", scratch.path)


def lay(scratch: Scratch, request: Request) -> Report:
    """Cover every writable folder, and put the shared paths, and the other exceptions, of a request on top.

    What cannot be covered becomes read-only, and where even that fails it is `exposed`. Raises OSError where one
    of the paths of the request cannot be had.
    """
    report = Report()
    mounts = [mount for mount in read_mounts() if mount.path != scratch.path]
    layers = choose_layers(mounts, _folders_in, request.wanted)
    # Opened while they can be reached, shown when all is covered; in this order, as some lie in others.
    lookups = [path for path in _USER_LOOKUPS if os.path.isdir(path)]
    shown = [(os.open(source, os.O_PATH), target) for source, target in request.over]
    shown += [(os.open(path, os.O_PATH), path) for path in (*lookups, *request.shared, *request.read_only)]
    covered = {layer.path for layer in _cover_all(layers, scratch, report)}
    _renew_shared_memory()
    for descriptor, path in shown:
        _show(descriptor, path, read_only=path in request.read_only)
        os.close(descriptor)
    for mount in mounts:
        if mount.holds_files and not mount.read_only and mount.path not in covered:
            _make_read_only(mount, report)
    _hide(scratch.path)
    return report


def _cover_all(layers: Sequence[Layer], scratch: Scratch, report: Report) -> list[Layer]:
    done = []
    for number, layer in enumerate(layers):
        if not os.access(layer.path, os.X_OK):
            continue  # nothing in it can be reached
        try:
            _cover(layer.path, layer.path, scratch, f"layers/{number}", _flags_of(layer.mount))
        except OSError:
            report.read_only.append(layer.path)
        else:
            done.append(layer)
    report.layers = len(done)
    return done


def _cover(lower: str, target: str, scratch: Scratch, name: str, flags: int = 0) -> None:
    upper, work = scratch.make(name, "upper"), scratch.make(name, "work")
    _look_like(lower, upper)
    # By descriptor: a path may hold the characters that separate options.
    opened = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (lower, upper, work)]
    try:
        options = ",".join(
            f"{option}=/proc/self/fd/{descriptor}"
            for option, descriptor in zip(("lowerdir", "upperdir", "workdir"), opened)
        )
        system.mount("overlay", target, "overlay", flags, options + ",userxattr")
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _look_like(original: str, copy: str) -> None:
    """The top folder of a layer is what is seen: give it owner, rights and times of what it covers."""
    info = os.stat(original)
    mode = stat.S_IMODE(info.st_mode)
    try:
        os.chown(copy, info.st_uid, info.st_gid)
    except OSError:
        # It is this user's now: what could not be written in still cannot.
        if not os.access(original, os.W_OK):
            mode &= ~0o222
    os.chmod(copy, mode)
    os.utime(copy, ns=(info.st_atime_ns, info.st_mtime_ns))


def _renew_shared_memory() -> None:
    if os.path.isdir(SHARED_MEMORY):
        system.mount("tmpfs", SHARED_MEMORY, "tmpfs", system.NO_SUID | system.NO_DEVICES, "mode=1777")


def _show(descriptor: int, path: str, read_only: bool) -> None:
    """Put what is open at a path, with what is mounted in it."""
    source = f"/proc/self/fd/{descriptor}"
    if not os.path.exists(path):  # in shared memory, which is new, or in a copy that lacks it
        if os.path.isdir(source):
            os.makedirs(path)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="ascii"):
                pass
    system.mount(source, path, None, system.BIND | system.RECURSIVE)
    if read_only:
        inherited = os.fstatvfs(descriptor).f_flag & sum(_FLAGS.values())  # the two calls share these numbers
        system.mount(None, path, None, system.REMOUNT | system.BIND | system.READ_ONLY | inherited)


def _make_read_only(mount: Mount, report: Report) -> None:
    flags = system.REMOUNT | system.BIND | system.READ_ONLY | _flags_of(mount)
    try:
        system.mount(None, mount.path, None, flags)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.ENOENT):  # then the program cannot get there either
            report.exposed.append(mount.path)


def _hide(path: str) -> None:
    """Nothing at the scratch folder's path: what is written would be seen twice there, and going in is an error."""
    with contextlib.suppress(FileNotFoundError):
        system.mount("tmpfs", path, "tmpfs", system.READ_ONLY, "size=4k,mode=700")


def _flags_of(mount: Mount) -> int:
    return sum(flag for name, flag in _FLAGS.items() if name in mount.options)


def _folders_in(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []  # not this user's to look into


def wanted_paths(cwd: str, environment: dict[str, str]) -> list[str]:
    """Where a program most likely writes, by their real paths."""
    named = [cwd, environment.get("HOME", ""), environment.get("TMPDIR", ""), "/tmp", "/var/tmp"]
    return list(dict.fromkeys(os.path.realpath(path) for path in named if path))
