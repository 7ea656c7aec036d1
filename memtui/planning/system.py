"""The kernel's calls for namespaces and mounts, which Python 3.9 does not have."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from typing import Optional

# linux/sched.h
NEW_MOUNTS = 0x00020000
NEW_USER = 0x10000000
NEW_NETWORK = 0x40000000

# linux/mount.h
READ_ONLY = 0x1
NO_SUID = 0x2
NO_DEVICES = 0x4
NO_EXEC = 0x8
REMOUNT = 0x20
BIND = 0x1000
RECURSIVE = 0x4000
RECEIVE_ONLY = 0x80000  # MS_SLAVE: mounts made outside later appear, none of ours goes out

# linux/sockios.h, net/if.h
_GET_FLAGS = 0x8913
_SET_FLAGS = 0x8914
_UP = 0x1
_INTERFACE = "16sH22x"

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave the namespaces of `flags` for new ones. Raises OSError."""
    if _libc.unshare(ctypes.c_int(flags)):
        raise _last_error("unshare")


def mount(source: Optional[str], target: str, kind: Optional[str] = None, flags: int = 0, options: str = "") -> None:
    """mount(2). Raises OSError with the target as its file name."""
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    if _libc.mount(*arguments, ctypes.c_ulong(flags), os.fsencode(options)):
        raise _last_error(target)


def raise_loopback() -> None:
    """Make 127.0.0.1 work in a new network namespace. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack(_INTERFACE, b"lo", 0))
        flags = struct.unpack(_INTERFACE, answer)[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack(_INTERFACE, b"lo", flags | _UP))


def _last_error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)
