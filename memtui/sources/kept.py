"""Logs that agents have kept of programs that ran out of memory while nobody watched them."""

from __future__ import annotations

import os
import pathlib
from typing import Optional

from memtui.session.session import Session
from memtui.wire import paths

from .log_format import LogError
from .log_reader import LogReader


def kept_log(pid: int, since_s: float) -> Optional[pathlib.Path]:
    """The newest that process `pid` of this user has written since then (Unix seconds); None where there is none."""
    found = []
    for folder in paths.kept_folders():
        try:
            names = [name for name in os.listdir(folder) if name.startswith("oom-") and name.endswith(f"-{pid}.log")]
            found += [(os.stat(folder / name).st_mtime, folder / name) for name in names]
        except OSError:
            continue
    newest = max(found, default=None)
    return newest[1] if newest is not None and newest[0] >= since_s else None


def kept_session(path: pathlib.Path) -> Optional[Session]:
    """What such a log holds; None where it cannot be read."""
    try:
        reader = LogReader(str(path))
    except LogError:
        return None
    reader.close()
    return reader.whole
