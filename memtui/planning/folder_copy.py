"""A bounded copy of a working folder, for a program to write to."""

from __future__ import annotations

import os
import shutil
import stat
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

#: Sources and settings are far below these; data and checkpoints are what they leave out.
MAX_FILE_BYTES = 64 << 20
MAX_TOTAL_BYTES = 1 << 30
MAX_FILES = 20_000

_NOT_COPIED = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules"})


@dataclass
class FolderCopy:
    """What was copied, and what is not there: `left_out` by path in the folder, with bytes (`None` for a folder).

    `linked` leads to the original: environments of Python, which are only read, what is mounted in the folder, and
    what the caller named. `outward` are links of the folder's own that lead out of it.
    """

    files: int = 0
    total_bytes: int = 0
    left_out: list[tuple[str, Optional[int]]] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    outward: list[str] = field(default_factory=list)


def copy_folder(source: str, target: str, *, linked: Sequence[str] = (), links: bool = True) -> FolderCopy:
    """Copy a folder with its times and rights, level by level until a limit is met, into a new one.

    What is too big is left out and not linked: a program that writes a checkpoint would write through the link.
    `linked` paths, relative to the folder, are taken to be only read; without `links` the links to the original are
    not made, only listed. Raises OSError where `target` cannot be made.
    """
    done = FolderCopy()
    source = os.path.realpath(source)
    os.makedirs(target)
    waiting = deque([""])
    while waiting:
        folder = waiting.popleft()
        try:
            entries = sorted(os.scandir(os.path.join(source, folder)), key=lambda entry: entry.name)
        except OSError:
            done.left_out.append((folder, None))
            continue
        for entry in entries:
            path = os.path.join(folder, entry.name)
            to = os.path.join(target, path)
            if path in linked or _is_apart(entry):
                if links:
                    os.symlink(entry.path, to)
                done.linked.append(path)
            elif entry.is_symlink():
                _copy_link(entry.path, to, source, path, done)
            elif entry.is_dir():
                if entry.name not in _NOT_COPIED:
                    os.mkdir(to, 0o700)
                    waiting.append(path)
            else:
                _copy_file(entry, to, path, done)
    return done


def _is_apart(entry: os.DirEntry[str]) -> bool:
    """An environment of Python, or another file system's folder."""
    if not entry.is_dir(follow_symlinks=False):
        return False
    marks = (os.path.join(entry.path, mark) for mark in ("pyvenv.cfg", "conda-meta"))
    return any(map(os.path.exists, marks)) or os.path.ismount(entry.path)


def _copy_link(original: str, to: str, source: str, path: str, done: FolderCopy) -> None:
    end = os.path.realpath(original)
    if end.startswith(source + "/") and not os.path.isabs(os.readlink(original)):
        os.symlink(os.readlink(original), to)
    elif end.startswith(source + "/"):
        os.symlink(os.path.relpath(end, os.path.dirname(original)), to)
    else:
        os.symlink(end, to)
        done.outward.append(path)


def _copy_file(entry: os.DirEntry[str], to: str, path: str, done: FolderCopy) -> None:
    try:
        info = entry.stat()
        if not stat.S_ISREG(info.st_mode):
            return
        size = info.st_size
        if size > MAX_FILE_BYTES or done.total_bytes + size > MAX_TOTAL_BYTES or done.files >= MAX_FILES:
            done.left_out.append((path, size))
            return
        shutil.copy2(entry.path, to)
    except OSError:
        done.left_out.append((path, None))
        return
    done.files += 1
    done.total_bytes += size
