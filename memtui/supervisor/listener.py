"""The supervisor's socket file: private, and made again when something removes it."""

from __future__ import annotations

import os
import pathlib
import socket
import struct
from typing import Callable

_PEER = struct.Struct("3i")  # pid, uid, gid

_BACKLOG = 16


class Listener:
    """A listening unix socket (mode 0600) at the path that `find_path` names at the time."""

    def __init__(self, find_path: Callable[[], pathlib.Path]) -> None:
        self._find_path = find_path
        self._path: pathlib.Path | None = None
        self._identity: tuple[int, int] | None = None
        self._superseded = False
        self.socket: socket.socket | None = None

    def open(self) -> None:
        """Bind and listen; raises OSError or PathError. A stale file of the same name is replaced."""
        path = self._find_path()
        # Under another name first: whoever finds the file finds somebody listening, with the right mode.
        fresh = path.with_name(f"{path.name}.{os.getpid() % 100000}")
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            fresh.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                made.bind(os.fspath(fresh))
            finally:
                os.umask(before)
            made.listen(_BACKLOG)
            os.replace(fresh, path)
            information = os.lstat(path)
        except OSError:
            made.close()
            raise
        self._path, self._identity, self.socket = path, (information.st_dev, information.st_ino), made

    def intact(self) -> bool:
        """Whether there is nothing to mend: the file is there, or a successor's is, which then keeps the name."""
        if self._superseded:
            return True
        if self._path is None:
            return False
        try:
            information = os.lstat(self._path)
        except OSError:
            return False
        # Pids repeat within a day on a busy machine; the living program is the one people ask for.
        self._superseded = (information.st_dev, information.st_ino) != self._identity
        return True

    def accept(self) -> socket.socket | None:
        """The next viewer's connection, non-blocking; None where there is none or it is another user's."""
        assert self.socket is not None
        try:
            peer, _ = self.socket.accept()
        except OSError:
            return None
        try:
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        except OSError:
            peer.close()
            return None
        # The folder's mode keeps others out already; root may do as it likes anyway.
        if _PEER.unpack(credentials)[1] not in (os.geteuid(), 0):
            peer.close()
            return None
        peer.setblocking(False)
        return peer

    def close(self) -> None:
        """Stop listening; remove the file if it is still this one."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None
        if self._path is None:
            return
        try:
            information = os.lstat(self._path)
            if (information.st_dev, information.st_ino) == self._identity:
                self._path.unlink()
        except OSError:
            pass  # already gone, or its folder is
        self._path = None
