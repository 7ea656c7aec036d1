"""What is mounted, and which folders of it can take a layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

#: Below these is the kernel's own, or devices: left as it is. Shared memory is dealt with apart.
_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")

#: Mounted anywhere: views of the kernel, not places to keep files.
_KERNEL_KINDS = re.compile(
    "autofs|binfmt_misc|bpf|cgroup2?|configfs|debugfs|devpts|devtmpfs|efivarfs|fusectl|hugetlbfs|mqueue|nsfs|proc|"
    "pstore|rpc_pipefs|securityfs|selinuxfs|sysfs|tracefs"
)

#: A layer costs a mount. What is beyond is read-only.
MAX_LAYERS = 256


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo: where it is, of what kind, and its own options (`ro`, `nosuid`, ...)."""

    path: str
    kind: str
    options: frozenset[str]
    read_only: bool

    @property
    def holds_files(self) -> bool:
        return not _KERNEL_KINDS.fullmatch(self.kind) and not any(
            is_below(self.path, folder) for folder in _KERNEL_FOLDERS
        )


def read_mounts(path: str = "/proc/self/mountinfo") -> list[Mount]:
    """What this process sees mounted, the topmost where several lie on one folder."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return parse_mounts(file.read())


def parse_mounts(text: str) -> list[Mount]:
    """The lines of a mountinfo (proc_pid_mountinfo(5)), later ones covering earlier ones of the same path."""
    found: dict[str, Mount] = {}
    for line in text.splitlines():
        own, _, rest = line.partition(" - ")
        fields, (kind, _, super_options) = own.split(" "), rest.split(" ", 2)
        options = frozenset(fields[5].split(","))
        path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), fields[4])
        found[path] = Mount(path, kind, options, "ro" in options or "ro" in super_options.split(","))
    return list(found.values())


def is_below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or in it; both absolute and normalised."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


@dataclass(frozen=True)
class Layer:
    """A folder that gets a layer over it, and the mount that it is on."""

    path: str
    mount: Mount


def choose_layers(
    mounts: Sequence[Mount], list_folders: Callable[[str], Iterable[str]], wanted: Sequence[str]
) -> list[Layer]:
    """The largest folders that can be covered, together all writable ones; those that hold a `wanted` path first.

    A user's namespace may not copy a folder with other mounts in it (they may hide something), so such a folder is
    left to be read-only itself, and the folders in it are taken. `list_folders` names the real folders in a folder.
    """
    places = {mount.path for mount in mounts}
    split = {ancestor for path in places for ancestor in _ancestors(path)}
    found: list[Layer] = []
    for mount in mounts:
        if mount.holds_files and not mount.read_only:
            found += (Layer(path, mount) for path in _whole_folders(mount.path, split, places, list_folders))

    def is_wanted(layer: Layer) -> bool:
        return any(is_below(path, layer.path) for path in wanted)

    found.sort(key=lambda layer: not is_wanted(layer))
    return found[:MAX_LAYERS]


def _whole_folders(
    folder: str, split: set[str], places: set[str], list_folders: Callable[[str], Iterable[str]]
) -> Iterable[str]:
    if folder not in split:
        yield folder
        return
    for name in list_folders(folder):
        path = folder.rstrip("/") + "/" + name
        if path not in places:
            yield from _whole_folders(path, split, places, list_folders)


def _ancestors(path: str) -> Iterable[str]:
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path
