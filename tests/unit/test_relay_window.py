"""How many bytes of a link may be under way."""

from __future__ import annotations

import pytest

from memtui.relay import window
from memtui.relay.window import Window


class Clock:
    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(window.time, "monotonic", lambda: made.now)
    return made


def carried(made: Window, clock: Clock, seconds: float, times: int) -> None:
    """Full windows, one after the other, each taken in so much later."""
    for _ in range(times):
        count = made.room
        made.send(count)
        assert made.room == 0
        clock.now += seconds
        made.take(count)


def test_a_fast_link_gets_more_and_a_slow_one_less(clock: Clock) -> None:
    fast, slow, steady = Window(), Window(), Window()
    first = fast.size
    carried(fast, clock, 0.01, 20)
    carried(slow, clock, 5.0, 20)
    carried(steady, clock, 1.0, 20)
    assert slow.size < first == steady.size < fast.size
    assert slow.room == slow.size > 0


def test_one_late_window_counts_once(clock: Clock) -> None:
    """However many pieces it went in."""
    made = Window()
    first = made.size
    for _ in range(16):
        made.send(first // 16)
    clock.now += 3
    made.take(first)
    assert made.size == first // 3


def test_more_than_was_sent_is_no_credit() -> None:
    made = Window()
    made.send(10)
    made.take(1 << 40)
    assert made.room == made.size
