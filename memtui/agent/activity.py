"""What the training is busy with besides its phases, as the agent's thread sees it tick by tick."""

from __future__ import annotations

from typing import Optional

from .stack import Stack

#: A phase younger than half a tick is not looked into. What began in it is still there at the next tick if it is to
#: be seen on any screen; and steps shorter than this, which a look would cost most, are left alone altogether.
_LEAST_NS = 50_000_000


class Activity:
    """Puts saving, loading and compiling in the place of the phase that they happen in."""

    def __init__(self) -> None:
        self.name: Optional[str] = None  # what was seen at the latest tick
        self._since_ns = 0
        self._phase_since_ns = -1
        self._stack = Stack()

    def place(self, phase: str, since_ns: int, now_ns: int, thread: Optional[int]) -> tuple[str, int]:
        """What to show for `phase`, which began at `since_ns`, and since when: at the latest from when it was seen."""
        name = None
        if thread is not None and now_ns - since_ns >= _LEAST_NS:
            # A backward pass may be compiled when it first runs, on a thread of autograd's own.
            name = self._stack.doing(thread, others=phase == "backward")
        passed = since_ns != self._phase_since_ns  # a boundary came since the latest tick
        if passed or name != self.name:
            # What was seen to be over was over at the latest now: the phase goes on from here.
            self._since_ns = since_ns if passed and name is None else now_ns
        self.name, self._phase_since_ns = name, since_ns
        return name or phase, self._since_ns

    def now(self, thread: int) -> Optional[str]:
        """What the stack of `thread` shows at this moment."""
        return self._stack.doing(thread)
