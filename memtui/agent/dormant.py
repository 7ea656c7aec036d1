"""What is in a process from the import of torch until it uses a device or trains: hooks, no thread, no socket."""

from __future__ import annotations

import os
import sys
from typing import Any

#: Two copies of the package may be loaded (from the path, and an installed one): they share this one agent.
_KEY = "_memtui_agent_of_this_process"


def current() -> Any:
    """The agent of this process, or None."""
    return sys.modules.get(_KEY)


def install() -> Any:
    """Begins to watch, dormant; returns the agent. torch must be imported. Calling it again changes nothing."""
    existing = current()
    if existing is not None:
        return existing
    from .agent import Agent

    agent = Agent(sys.modules["torch"])
    sys.modules[_KEY] = agent  # type: ignore[assignment]
    agent.install()
    # The program that was started itself, not one of its helpers: watched from here on, also where it only infers.
    if os.environ.get("MEMTUI_DIRECT") == str(os.getpid()):
        agent.start()
    return agent
