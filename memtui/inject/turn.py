"""One tool at a time: two that write into the same process at once would meet in its code."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import time
from collections.abc import Callable, Iterator

from .errors import InjectError

_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.02


@contextlib.contextmanager
def turn(pid: int, over: Callable[[], bool] = bool) -> Iterator[None]:
    """Keeps others out of process `pid`, after them if need be; given back by the kernel should this process die.

    Raises InjectError where that takes long, or it is `over`.
    """
    # An abstract name: it is in no file system, and belongs to whoever lives.
    started = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    space = os.readlink(f"/proc/{pid}/ns/pid").strip("pid:[]") if os.access(f"/proc/{pid}/ns/pid", os.F_OK) else ""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as holder:
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                holder.bind(f"\0memtui-inject-{space}-{pid}-{started}")
                break
            except OSError:
                if over() or time.monotonic() > end:
                    raise InjectError(f"another memtui is getting into process {pid}: try again") from None
            time.sleep(_PAUSE_SECONDS)
        yield
