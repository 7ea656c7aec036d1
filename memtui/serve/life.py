"""Whether a process lives, and how it ended, as the system tells without being asked much."""

from __future__ import annotations

import pathlib
import signal
from typing import NamedTuple, Optional

#: How a process can end. "interrupted" by somebody who asked it to; "killed" by another signal that somebody has seen;
#: "silent": it went without a word.
OUTCOMES = ("ok", "interrupted", "exception", "oom", "killed", "silent")
#: By which a person or a scheduler asks a process to end.
_ASKING = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
_EXHAUSTED = ("OutOfMemoryError", "MemoryError")


class Life(NamedTuple):
    """A process by /proc/PID/stat; `started` tells it from a later one of the same pid."""

    state: str  # R, S, D, T, t, Z...
    started: int  # ticks since the machine's start
    signal: int  # that ended it, of a zombie

    @property
    def stopped(self) -> bool:
        """By a signal, or a debugger."""
        return self.state in {"T", "t"}

    @property
    def over(self) -> bool:
        """Whether it has ended, collected or not."""
        return self.state in {"Z", "X"}


def life_of(pid: int) -> Optional[Life]:
    """None where there is no such process."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in parentheses may contain anything.
    words = stat.rpartition(")")[2].split()
    code = int(words[49]) if len(words) > 49 else 0
    return Life(words[0], int(words[19]), code & 0x7F)


def outcome_of_exception(exception: Optional[str]) -> str:
    """How a process ended that has said goodbye; `exception` is the class of the uncaught one."""
    if not exception:
        return "ok"
    if exception.rpartition(".")[2] == "KeyboardInterrupt":
        return "interrupted"
    return "oom" if exception.rpartition(".")[2] in _EXHAUSTED else "exception"


def outcome_of_signal(number: int) -> str:
    """How a process ended that has said nothing; `number` is the signal that ended it, 0 where nobody has seen one."""
    if not number:
        return "silent"
    return "interrupted" if number in _ASKING else "killed"
