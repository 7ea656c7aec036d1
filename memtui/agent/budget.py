"""How much of the training's time the agent may take."""

from __future__ import annotations


class Budget:
    """A share of the elapsed time, saved up to a burst. Times are nanoseconds; the clock is passed in."""

    def __init__(self, share: float, burst_ns: int, now_ns: int) -> None:
        self._share, self._burst_ns = share, burst_ns
        self._saved_ns = float(burst_ns)
        self._at_ns = now_ns

    def allows(self, cost_ns: float, now_ns: int) -> bool:
        """Whether `cost_ns` is saved up; a cost above the burst is allowed once the savings are full."""
        self._saved_ns = min(self._burst_ns, self._saved_ns + (now_ns - self._at_ns) * self._share)
        self._at_ns = now_ns
        return self._saved_ns >= min(cost_ns, self._burst_ns)

    def spend(self, cost_ns: float) -> None:
        """Takes what was really spent; the savings may go below zero and are then earned back."""
        self._saved_ns -= cost_ns
