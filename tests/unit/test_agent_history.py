"""What a late viewer may still see: recent frames all, older ones sparser, the highest always."""

from __future__ import annotations

from memtui.agent.history import History

SECOND = 1_000_000_000


def fill(history: History, seconds: int, spikes: dict[int, int]) -> None:
    for tick in range(10 * seconds):
        history.append(tick * SECOND // 10, spikes.get(tick, 100), b"%d" % tick)


def test_the_last_minute_is_whole_and_in_order() -> None:
    history = History()
    fill(history, 200, {})
    ticks = [int(message) for message in history.messages()]
    assert ticks == sorted(ticks)
    assert ticks[-900:] == list(range(1100, 2000))


def test_spikes_outlive_their_neighbours_for_hours() -> None:
    history = History()
    spikes = {tick: 10_000 + tick for tick in (77, 40_003, 150_019)}
    fill(history, 20_000, spikes)
    kept = {int(message) for message in history.messages()}
    assert kept.issuperset(spikes)


def test_memory_is_bounded() -> None:
    history = History()
    fill(history, 40_000, {})
    assert len(history) <= 900 + 600 + 720
