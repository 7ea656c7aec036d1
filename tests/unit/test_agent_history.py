"""What a late viewer may still see: recent frames all, older ones sparser, the highest always."""

from __future__ import annotations

import random

from memtui.agent.history import History

SECOND = 1_000_000_000


def fill(history: History, seconds: int, spikes: dict[int, int]) -> None:
    for tick in range(10 * seconds):
        history.append(tick * SECOND // 10, spikes.get(tick, 100), b"%d" % tick)


def test_the_newest_are_whole_and_in_order() -> None:
    history = History()
    fill(history, 200, {})
    ticks = [int(message) for message in history.messages()]
    assert ticks == sorted(ticks)
    assert ticks[-450:] == list(range(1550, 2000))


def test_spikes_outlive_their_neighbours_for_hours() -> None:
    history = History()
    spikes = {tick: 10_000 + tick for tick in (77, 40_003, 150_019)}
    fill(history, 20_000, spikes)
    kept = {int(message) for message in history.messages()}
    assert kept.issuperset(spikes)


def test_memory_is_bounded() -> None:
    history = History()
    fill(history, 40_000, {})
    assert len(history) <= 450 + 600 + 720


def test_what_is_packed_comes_out_as_it_went_in() -> None:
    """Byte for byte, also frames that are like no other, and the older ones take less room than they were."""
    history = History()
    chance = random.Random(1)
    kept = {}
    for second in range(4_000):
        size = 3_000 if second % 7 == 0 else 1_000
        kept[second] = b"%07d" % second + b'{"allocated_bytes":%d}' % chance.getrandbits(40) * (size // 40)
        history.append(second * SECOND, second, kept[second])
    out = history.messages()
    assert len(out) > 1_100
    for message in out:
        assert message == kept[int(message[:7])]
    older = [packed for tier in history._tiers[1:] for _, _, packed in tier]
    assert sum(map(len, older)) < 0.2 * sum(len(message) for message in out[:-450])
