"""Python's evaluation loop in the target, in which a thread can be asked to look at its queue of calls."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass
from typing import Optional

from .image import Image
from .memory import Memory

_LOOP, _RELEASE = "_PyEval_EvalFrameDefault", "PyThread_release_lock"
#: Between taking the queue's lock and giving it back there is less code than this.
_LOCKED_BYTES = 512
_CALL, _JUMP = b"\xe8", b"\xff\x25"
_PREFIXES = (b"", b"\xf3\x0f\x1e\xfa", b"\xf2", b"\xf3\x0f\x1e\xfa\xf2")  # of a jump in a linkage table


@dataclass(frozen=True)
class Evaluation:
    """Where the loop is, and the function by which Python gives a lock back."""

    start: int
    end: int
    release: int

    def releases(self, memory: Memory) -> tuple[int, ...]:
        """Where in the loop a lock may be given back. Raises OSError."""
        code = memory.read(self.start, self.end - self.start)
        leads: dict[int, bool] = {self.release: True}
        found = []
        at = code.find(_CALL)
        while 0 <= at < len(code) - 5:
            target = self.start + at + 5 + struct.unpack_from("<i", code, at + 1)[0]
            if target not in leads:
                leads[target] = self._leads_there(memory, target)
            if leads[target]:
                found.append(self.start + at)
            at = code.find(_CALL, at + 1)
        return tuple(found)

    def is_in_the_open(self, where: int, releases: tuple[int, ...]) -> bool:
        """Whether a thread that is at `where` runs the loop itself, and cannot hold the lock of its queue of calls.

        A compiler may have put the code that takes from the queue into the loop: near any giving back of a lock the
        answer is no.
        """
        return self.start <= where < self.end and all(abs(where - at) > _LOCKED_BYTES for at in releases)

    def _leads_there(self, memory: Memory, address: int) -> bool:
        # Through the linkage table of a shared library. What only looks like a call may lead anywhere.
        with contextlib.suppress(OSError, OverflowError):
            code = memory.read(address, 16)
            for prefix in _PREFIXES:
                if code.startswith(prefix + _JUMP):
                    at = len(prefix) + len(_JUMP)
                    return memory.word(address + at + 4 + struct.unpack_from("<i", code, at)[0]) == self.release
        return False


def find_evaluation(image: Image) -> Optional[Evaluation]:
    """None where the file does not export what is needed."""
    loop, release = image.extent(_LOOP), image.symbol(_RELEASE)
    if loop is None or release is None or not loop[1]:
        return None
    return Evaluation(loop[0], loop[0] + loop[1], release)
