"""Which phase the training was in, over time."""

from __future__ import annotations

import bisect
import statistics
from array import array
from typing import Optional

from memtui.wire.frames import PHASES, Frame

#: Changes kept: at six a step, the last ten thousand steps.
CHANGES_KEPT = 65_536
_UNKNOWN = -1
#: Changes that are gone through for the length of a phase.
_LOOKED_AT = 512
_CODES = {phase: code for code, phase in enumerate(PHASES)}


#: What comes right after what in one step.
_NEXT = frozenset((("forward", "backward"), ("backward", "optimizer"), ("between", "forward")))


def follows(before: Frame, frame: Frame) -> bool:
    """Whether the phase of `before` went on until that of `frame` began, as far as frames tell.

    Of short steps few are told: there a backward and the next forward may have many steps between them.
    """
    if before.step == frame.step and (before.phase, frame.phase) in _NEXT:
        return True
    ended = frame.step_since_ns == frame.phase_since_ns
    if ended and (before.phase, frame.phase, before.step + 1) == ("optimizer", "between", frame.step):
        return True
    # All boundaries of a step are told, or none.
    consecutive = frame.boundary is not None and frame.sequence == before.sequence + 1
    return consecutive and frame.step == before.step + ended


class PhaseHistory:
    """Phase changes in order; `append` is O(1), `window` O(columns x log changes)."""

    def __init__(self, kept: int = CHANGES_KEPT) -> None:
        self._kept = kept
        self._times: array[int] = array("q")
        self._codes: array[int] = array("b")
        self.end_ns: int | None = None

    def append(self, since_ns: int, phase: str, now_ns: int, *, follows: bool = True) -> None:
        """Says that `phase`, begun at `since_ns`, still was at `now_ns`.

        Unless it `follows` the one before, what was between the two is not known.
        """
        if not follows and self.end_ns is not None and since_ns > self.end_ns + 1:
            self._change(self.end_ns + 1, _UNKNOWN)
        self.end_ns = now_ns if self.end_ns is None else max(self.end_ns, now_ns)
        code = _CODES.get(phase, _UNKNOWN)
        if self._codes and self._codes[-1] == code and since_ns <= self._times[-1]:
            return
        self._change(since_ns, code)

    def _change(self, since_ns: int, code: int) -> None:
        self._times.append(max(since_ns, self._times[-1] + 1) if self._times else since_ns)
        self._codes.append(code)
        if len(self._times) >= self._kept + self._kept // 4:
            del self._times[: self._kept // 4]
            del self._codes[: self._kept // 4]

    def at(self, time_ns: int) -> str | None:
        """The phase at `time_ns`; None before the first and after the last that is known."""
        if self.end_ns is None or time_ns > self.end_ns:
            return None
        place = bisect.bisect_right(self._times, time_ns) - 1
        if place < 0 or self._codes[place] < 0:
            return None
        return PHASES[self._codes[place]]

    def median_ns(self, phase: str, count: int) -> int | None:
        """How long the newest `count` whole stretches of `phase` lasted, in the middle; None where none is known."""
        code, found = _CODES.get(phase), []
        for place in range(len(self._codes) - 2, max(-1, len(self._codes) - 2 - _LOOKED_AT), -1):
            # What follows it is known, so that its end is.
            if self._codes[place] == code and self._codes[place + 1] >= 0:
                found.append(self._times[place + 1] - self._times[place])
                if len(found) == count:
                    break
        return int(statistics.median(found)) if found else None

    def window(self, start_ns: int, end_ns: int, columns: int) -> list[Optional[str]]:
        """The phase in the middle of each of `columns` equal pieces of [start, end)."""
        width = end_ns - start_ns
        return [self.at(start_ns + width * (2 * column + 1) // (2 * columns)) for column in range(columns)]
