"""Where in the target there is room for memtui's code, and what an earlier tool has left there."""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass

from . import stub
from .errors import InjectError
from .image import Image, bases
from .maps import Mapping, with_address
from .memory import Memory

#: Files that stay mapped for as long as the process lives: a queued call is in one of them.
_LASTING = (
    "libpython",
    "libc.so",
    "libc-2",
    "libm.so",
    "libm-2",
    "ld-",
    "libtorch",
    "libc10",
    "libstdc++",
    "libgcc_s",
    "libpthread",
    "libdl",
    "libutil",
    "libz.so",
)
_PASSING_BYTES = 1024


@dataclass(frozen=True)
class Place:
    """Room for both pieces of code."""

    base: int
    end: int
    left_by: int = 0  # the thread that a tool which was killed has sent through, and that may be in there

    @property
    def token_address(self) -> int:
        """Of the token of the call that may run; another value cancels it."""
        return self.base

    @property
    def passing(self) -> int:
        """Where the passing piece goes."""
        return self.base + stub.PASSING_OFFSET

    @property
    def cleared(self) -> bytes:
        """What is there once the passing piece is taken away; the resident one stays, for a call that is queued."""
        return bytes(_PASSING_BYTES)


def find_place(pid: int, memory: Memory, mappings: list[Mapping]) -> Place:
    """The best one; raises InjectError where there is none."""
    executable = os.readlink(f"/proc/{pid}/exe")
    begins = bases(mappings)
    order = {path: start for path, start in begins.items() if path == executable}
    order |= {path: start for path, start in begins.items() if path.rpartition("/")[2].startswith(_LASTING)}
    unused: list[Place] = []
    left: list[Place] = []
    for start in order.values():
        with contextlib.suppress(OSError, ValueError, struct.error):
            place = _look(memory, mappings, start)
            if place is not None and place[1]:
                if not place[0].left_by:
                    return place[0]
                left.append(place[0])
            elif place is not None:
                unused.append(place[0])
    # What was left behind is used again rather than more and more of them.
    found = [*left, *unused]
    if not found:
        raise InjectError("its code has no unused room for memtui's")
    return found[0]


def _look(memory: Memory, mappings: list[Mapping], start: int) -> tuple[Place, bool] | None:
    """(the place behind a file's code, whether memtui has been there); None where it is too small or not empty."""
    gap = Image(memory, start).gap()
    if gap is None or gap.end - gap.start < stub.PASSING_OFFSET + _PASSING_BYTES:
        return None
    mapping = with_address(mappings, gap.start)
    if mapping is None or "x" not in mapping.permissions or mapping.end < gap.end:
        return None
    held = memory.read(gap.start, stub.PASSING_OFFSET + _PASSING_BYTES)
    if not any(held):
        return Place(gap.start, gap.end), False
    if held[8 : 8 + len(stub.RESIDENT_CODE)] != stub.RESIDENT_CODE:
        return None
    (left_by,) = struct.unpack_from("<Q", held, stub.PASSING_OFFSET)
    return Place(gap.start, gap.end, left_by), True
