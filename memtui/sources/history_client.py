"""Asks an agent for the allocator's history of some steps, over a connection of its own."""

from __future__ import annotations

import pathlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Optional

from memtui.wire import codec
from memtui.wire.frames import PROTOCOL, Frame, Request
from memtui.wire.histories import HistoryNews, HistoryPart

from .agent_probe import AgentError, check_greeting, reason_of
from .agent_way import SocketWay, Way
from .history_taker import HistoryTaker

_LOOK_SECONDS = 0.25
_CHUNK = 1 << 18
#: An agent that knows of histories answers before its next frame; so many make sure that one does not.
_PATIENCE_FRAMES = 30


class History(NamedTuple):
    """Torch's own snapshot, how it came about, and what was left out."""

    snapshot: dict[str, Any]
    figures: dict[str, int]
    notices: tuple[str, ...]


class HistoryRefused(Exception):
    """There is no history to be had; the message is one line for the user."""


def ask_history(
    agent: pathlib.Path | Way,
    steps: int,
    *,
    stacks: bool = False,
    told: Callable[[str], None] = lambda _state: None,
    cancel: Optional[threading.Event] = None,
) -> History:
    """The history of the next steps, of the agent that listens at a path or is at the end of a way.

    `told` is called with each new state of HistoryNews.

    Raises HistoryRefused, also once `cancel` is set; the program then is as it was.
    """
    taker, news, frames = HistoryTaker(), None, 0
    way = SocketWay(agent) if isinstance(agent, pathlib.Path) else agent
    try:
        for message in _messages(way, Request("history", PROTOCOL, steps=steps, stacks=stacks), cancel):
            if isinstance(message, HistoryNews):
                if message.state == "refused":
                    raise HistoryRefused(message.text)
                if message.state == "complete":
                    return History(taker.snapshot(), message.figures, message.notices)
                news = message
                told(message.state)
            elif isinstance(message, HistoryPart):
                taker.take(message)
            elif isinstance(message, Frame) and news is None:
                frames += 1
                if frames > _PATIENCE_FRAMES:
                    raise HistoryRefused("the agent in this process is older than this memtui, and records no history")
    except ValueError as error:
        raise HistoryRefused(f"the agent sent {error}") from None
    except (AgentError, OSError) as error:
        raise HistoryRefused(reason_of(error)) from None
    raise HistoryRefused("the process or its agent went away before the history was complete")


def _messages(way: Way, request: Request, cancel: Optional[threading.Event]) -> Iterator[Any]:
    """What the agent says to a request, until it hangs up."""
    with way.dial() as connection:
        connection.sendall(codec.encode(Request("hello", PROTOCOL, history=False)) + codec.encode(request))
        connection.settimeout(_LOOK_SECONDS)
        splitter, greeted = codec.Splitter(), False
        while True:
            if cancel is not None and cancel.is_set():
                raise HistoryRefused("taken back: nothing is recorded")
            try:
                data = connection.recv(_CHUNK)
            except (TimeoutError, socket.timeout):  # two classes before Python 3.10
                continue
            if not data:
                return
            for body in splitter.feed(data):
                message = codec.decode(body)
                if not greeted:
                    check_greeting(message)
                    greeted = True
                yield message
