"""The environment that a process was started with."""

from __future__ import annotations

import os
import pathlib


def environment_of(pid: int) -> dict[str, str]:
    """Its variables; empty where they may not be read, or the process is gone. Source: /proc/PID/environ."""
    try:
        entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if name}
