"""How much of the training's time the agent may take."""

from __future__ import annotations

import gc
import time


class Meter:
    """Processor time of this thread since it was made."""

    def __init__(self) -> None:
        self._collections = gc.get_stats()[-1]["collections"]
        self._begun_ns = time.thread_time_ns()

    def spent_ns(self, usual_ns: float) -> int:
        """So much, or no more than is usual where Python's collector has gone through all objects meanwhile.

        That falls to whoever makes an object at the moment, takes a tenth of a second, and is no cost of what was done.
        """
        spent = time.thread_time_ns() - self._begun_ns
        collected = gc.get_stats()[-1]["collections"] != self._collections
        return min(spent, int(usual_ns)) if collected else spent


class Budget:
    """A share of the elapsed time, saved up to a burst. Times are nanoseconds; the clock is passed in.

    What is spent is processor time: waiting where others take the processor in the middle is no cost of ours, and one
    such wait would use up half a minute's savings. Another `share` counts from when the budget was asked last.
    """

    def __init__(self, share: float, burst_ns: int, now_ns: int) -> None:
        self.share, self._burst_ns = share, burst_ns
        self._saved_ns = float(burst_ns)
        self._at_ns = now_ns

    def allows(self, cost_ns: float, now_ns: int) -> bool:
        """Whether `cost_ns` is saved up; a cost above the burst is allowed once the savings are full."""
        return self.wait_ns(cost_ns, now_ns) == 0

    def wait_ns(self, cost_ns: float, now_ns: int) -> int:
        """How long until `cost_ns` is saved up; 0 where it is."""
        self._saved_ns = min(self._burst_ns, self._saved_ns + (now_ns - self._at_ns) * self.share)
        self._at_ns = now_ns
        missing = min(cost_ns, self._burst_ns) - self._saved_ns
        return 1 + int(missing / self.share) if missing > 0 else 0

    def spend(self, cost_ns: float) -> None:
        """Takes what was really spent; the savings may go below zero and are then earned back."""
        self._saved_ns -= cost_ns
