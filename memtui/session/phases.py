"""Which phase the training was in, over time."""

from __future__ import annotations

import bisect
from array import array
from typing import Optional

from memtui.wire.frames import PHASES

#: Changes kept: at six a step, the last ten thousand steps.
CHANGES_KEPT = 65_536
_CODES = {phase: code for code, phase in enumerate(PHASES)}


class PhaseHistory:
    """Phase changes in order; `append` is O(1), `window` O(columns x log changes)."""

    def __init__(self) -> None:
        self._times: array[int] = array("q")
        self._codes: array[int] = array("b")
        self.end_ns: int | None = None

    def append(self, since_ns: int, phase: str, now_ns: int) -> None:
        """Says that `phase`, begun at `since_ns`, still was at `now_ns`."""
        self.end_ns = now_ns if self.end_ns is None else max(self.end_ns, now_ns)
        code = _CODES.get(phase, -1)
        if self._codes and self._codes[-1] == code and since_ns <= self._times[-1]:
            return
        self._times.append(max(since_ns, self._times[-1] + 1) if self._times else since_ns)
        self._codes.append(code)
        if len(self._times) >= CHANGES_KEPT + CHANGES_KEPT // 4:
            del self._times[: CHANGES_KEPT // 4]
            del self._codes[: CHANGES_KEPT // 4]

    def at(self, time_ns: int) -> str | None:
        """The phase at `time_ns`; None before the first and after the last that is known."""
        if self.end_ns is None or time_ns > self.end_ns:
            return None
        place = bisect.bisect_right(self._times, time_ns) - 1
        if place < 0 or self._codes[place] < 0:
            return None
        return PHASES[self._codes[place]]

    def window(self, start_ns: int, end_ns: int, columns: int) -> list[Optional[str]]:
        """The phase in the middle of each of `columns` equal pieces of [start, end)."""
        width = end_ns - start_ns
        return [self.at(start_ns + width * (2 * column + 1) // (2 * columns)) for column in range(columns)]
