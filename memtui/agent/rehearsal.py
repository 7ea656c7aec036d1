"""A program that is only tried out, on virtual GPUs: what of it is done that no training would be done."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from typing import TYPE_CHECKING, Optional

from ..wire.frames import Event
from . import REHEARSAL
from .budget import Budget

if TYPE_CHECKING:
    from .host_parameters import HostParameters
    from .inputs import Inputs

#: So many steps are sampled at all of their boundaries.
_CLOSE_STEPS = 64
#: So long it waits to be ended after its last step, before its own end for a viewer that has not come yet, and without
#: the viewer that it had: then nobody is there any more who would end it.
_HELD_SECONDS, _GOODBYE_NS, _ALONE_NS = 20.0, 3_000_000_000, 10_000_000_000


class Rehearsal:
    """Does nothing in any other program."""

    def __init__(self) -> None:
        asked = os.environ.get(REHEARSAL, "")
        self.wanted = bool(asked)
        self._last_step = int(asked) if asked.isdigit() else 0
        self._closely = _CLOSE_STEPS if self.wanted else 0
        self._seen_ns = 0  # when a viewer's process was there
        self._viewers: frozenset[int] = frozenset()  # the processes of all that there were
        self._step = 0
        self.host: Optional[HostParameters] = None
        self.inputs: Optional[Inputs] = None

    def begin(self, host: Optional[HostParameters], events: deque[Event]) -> None:
        """What there is to tell of parameters on the host; what is told of a model's calls goes to `events`."""
        self.host = host
        if self.wanted:
            from .inputs import Inputs

            self.inputs = Inputs(events)

    def payer(self, now_ns: int) -> Optional[Budget]:
        """Who pays for looking at the next step, whatever that takes."""
        if not self._closely:
            return None
        self._closely -= 1
        return Budget(1.0, 0, now_ns)

    def ended(self, step: int) -> None:
        """So many steps are completed: after the last that is wanted, the training's thread waits to be ended."""
        self._step = step
        if self._last_step and step >= self._last_step:
            self._last_step = 0
            time.sleep(_HELD_SECONDS)

    def attend(self, viewers: frozenset[int], now_ns: int, events: deque[Event]) -> None:
        """Tells of parameters on the host; ends the process where its viewers' processes have gone.

        One that only watches another rank now has not.
        """
        built = None if self.host is None else self.host.event(self._step)
        if built is not None:
            events.append(built)
        self._viewers |= viewers
        if viewers or any(map(_lives, self._viewers)):
            self._seen_ns = now_ns
        elif self._seen_ns and now_ns - self._seen_ns > _ALONE_NS:
            os.kill(os.getpid(), signal.SIGKILL)

    def patience_ns(self) -> int:
        """How long the end of the process waits for a viewer."""
        return _GOODBYE_NS if self.wanted and not self._seen_ns else 0


def _lives(pid: int) -> bool:
    """Whether the process is there, and not only its entry that nobody has collected yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])
    except OSError:
        pass  # gone, or hidden from this user
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True
