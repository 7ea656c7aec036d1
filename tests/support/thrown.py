"""A user's folders for programs to write to, the users to run them as, and what is there before and after."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import pathlib
import pwd
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Optional

import pytest

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "programs"
WRECKING = str(PROGRAMS / "wrecking.py")

_SECONDS = 150
_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000


@dataclass(frozen=True)
class User:
    """Whom to run as; `number` is None for the user of the tests."""

    number: Optional[int]
    python: str
    groups: tuple[int, ...] = ()


def the_user(name: str) -> User:
    """`own` or `nobody`; skips where the latter cannot be had."""
    if name == "own":
        return User(None, sys.executable)
    if os.getuid() != 0:
        pytest.skip("only root can run something as another user")
    number = pwd.getpwnam("nobody").pw_uid
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            code = "import sys, memtui.planning.throwaway; sys.exit(sys.version_info < (3, 9))"
            done = subprocess.run([python, "-c", code], user=number, cwd=PROGRAMS.parents[1], check=False)
            if done.returncode == 0:
                return User(number, python)
    pytest.skip("no Python that another user may run, or no right to read memtui")


@dataclass
class World:
    """One user's home, project, temporary and shared folder, and a socket of somebody who listens."""

    top: pathlib.Path
    user: User

    @property
    def home(self) -> pathlib.Path:
        return self.top / "home"

    @property
    def project(self) -> pathlib.Path:
        return self.top / "home" / "project"

    @property
    def shared(self) -> pathlib.Path:
        return self.top / "shared"

    def run(
        self,
        *arguments: str,
        before: Optional[Callable[[], None]] = None,
        variables: Mapping[str, str] = MappingProxyType({}),
        **wish: Any,
    ) -> dict[str, Any]:
        """What the program `throwing` tells of a run; `before` is done in its process, before it becomes the user."""
        wish = {"command": [self.user.python, *arguments], **wish}
        wish["writable"] = [str(path) for path in wish.get("writable", ())]
        done = subprocess.run(
            [self.user.python, "-B", str(PROGRAMS / "throwing.py"), json.dumps(wish)],
            env={**self.environment(), **variables},
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            preexec_fn=lambda: become(self.user, before),
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "PWD": str(self.project),
            "TMPDIR": str(self.top / "tmp"),
            "SHARED": str(self.shared),
            "OUTSIDE_SOCKET": str(self.top / "listener"),
        }


def become(user: User, before: Optional[Callable[[], None]]) -> None:
    if before is not None:
        before()
    if user.number is not None:
        os.setgroups(user.groups)
        os.setgid(user.number)
        os.setuid(user.number)
        # Such a change makes a process one that its user may not look into, until it executes something.


@contextlib.contextmanager
def a_world(user: User) -> Iterator[World]:
    """Folders that are the user's, filled; not below pytest's own, which only its user may enter."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="mt-thrown-"))
    world = World(top, user)
    for folder in (world.home, world.project, world.shared, top / "tmp"):
        folder.mkdir(exist_ok=True)
    for folder in (world.home, world.project):
        fill(folder)
    (world.home / "cached").write_text("from the hub", encoding="ascii")
    with open(world.project / "weights.bin", "wb") as file:
        file.truncate(80 << 20)  # beyond what a copy takes
    (world.project / ".git").mkdir()
    (world.project / ".venv").mkdir()
    (world.project / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin", encoding="ascii")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(top / "listener"))
        listener.listen()
        own(top, user)
        try:
            yield world
        finally:
            shutil.rmtree(top)


def fill(folder: pathlib.Path) -> None:
    for name in ("changed", "appended", "deleted", "renamed", "rights", "times"):
        (folder / name).write_text(name, encoding="ascii")
    (folder / "full").mkdir()
    (folder / "full" / "inner").write_text("inner", encoding="ascii")
    base = sqlite3.connect(folder / "base.sqlite")
    base.execute("create table t (x)")
    base.execute("insert into t values (1)")
    base.commit()
    base.close()


def own(top: pathlib.Path, user: User) -> None:
    if user.number is not None:
        for parent, folders, names in os.walk(top):
            for name in (".", *folders, *names):
                os.lchown(os.path.join(parent, name), user.number, user.number)


def everything_in(top: pathlib.Path) -> dict[str, tuple[object, ...]]:
    """Every path with its kind and rights, owner, times of change, and contents."""
    found: dict[str, tuple[object, ...]] = {}
    for parent, folders, names in os.walk(top):
        for name in (".", *folders, *names):
            path = os.path.join(parent, name)
            info = os.lstat(path)
            contents = None
            if os.path.isfile(path):
                contents = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
            found[path] = (info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, info.st_ctime_ns, contents)
    return found


def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [word.encode() or None for word in (source, target, kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def need(before: Callable[[], None]) -> None:
    """Skips where a process may not do this before it becomes a program, as in most containers."""
    try:
        subprocess.run(["true"], preexec_fn=before, check=True)
    except subprocess.SubprocessError:
        pytest.skip("no namespaces for tests here")


def own_mounts() -> None:
    """A mount namespace of this process's own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "unshare")
    mount("", "/", "", 0x4000 | 0x40000, "")


def own_users() -> None:
    """A user namespace of this process's own, in which it may set limits."""
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_USER):
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (("setgroups", "deny"), ("gid_map", f"0 {gid} 1"), ("uid_map", f"0 {uid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def filter_namespaces() -> None:
    """A seccomp filter that refuses new namespaces, as those of containers do."""
    number = {"x86_64": 272, "aarch64": 97}[os.uname().machine]  # of unshare
    load, unless_equal, answer = 0x20, 0x15, 0x06  # linux/filter.h
    refuse, allow = 0x00050000 | errno.EPERM, 0x7FFF0000  # linux/seccomp.h
    rules = [(load, 0, 0, 0), (unless_equal, 0, 1, number), (answer, 0, 0, refuse), (answer, 0, 0, allow)]
    code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program):  # no new privileges; the filter
        raise OSError(ctypes.get_errno(), "seccomp")


def can_be_looked_into() -> None:
    """A process that changed its user belongs to root in /proc until it says otherwise (PR_SET_DUMPABLE)."""
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
