"""A series against the samples it was given, at every zoom."""

from __future__ import annotations

import time
from typing import Optional

from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.session.history import FANOUT, Series

Sample = tuple[int, int, int]  # time, low, high


@st.composite
def histories(draw: st.DrawFn) -> list[Sample]:
    """Up to some hundred samples at uneven distances, with spikes between them."""
    gaps = draw(st.lists(st.integers(1, 50), min_size=1, max_size=400))
    samples = []
    now = 0
    for gap in gaps:
        now += gap if draw(st.booleans()) else gap * draw(st.sampled_from((1, 1, 1, 100)))
        low = draw(st.integers(0, 1000))
        samples.append((now, low, low + draw(st.sampled_from((0, 0, 0, 5000)))))
    return samples


def filled(samples: list[Sample], capacity: int) -> Series:
    series = Series(capacity=capacity, levels=6)
    for time_ns, low, high in samples:
        series.append(time_ns, low, high)
    return series


def column_of(time_ns: int, start_ns: int, end_ns: int, columns: int) -> int:
    return (time_ns - start_ns) * columns // (end_ns - start_ns)


@settings(max_examples=300, deadline=None)
@given(histories(), st.integers(8, 64), st.integers(1, 60), st.data())
def test_no_sample_in_the_window_is_lost(
    samples: list[Sample], capacity: int, columns: int, data: st.DataObject
) -> None:
    """Whatever the zoom, each column's range holds every sample of it, also those whose own bucket is long gone."""
    series = filled(samples, capacity)
    last = samples[-1][0]
    start = data.draw(st.integers(-50, last))
    end = data.draw(st.integers(start + 1, last + 100))
    oldest = series.first_time_ns
    assert oldest is not None

    window = series.window(start, end, columns)

    assert len(window) == columns
    for time_ns, low, high in samples:
        if start <= time_ns < end and time_ns >= oldest:
            held = window[column_of(time_ns, start, end, columns)]
            assert held is not None
            assert held[0] <= low
            assert held[1] >= high


@settings(max_examples=300, deadline=None)
@given(histories(), st.integers(8, 64), st.integers(1, 60), st.data())
def test_nothing_from_further_away_than_one_bucket(
    samples: list[Sample], capacity: int, columns: int, data: st.DataObject
) -> None:
    """A range is made of samples of its column and of the buckets that reach into it, of nothing else."""
    series = filled(samples, capacity)
    last = samples[-1][0]
    start = data.draw(st.integers(-50, last))
    end = data.draw(st.integers(start + 1, last + 100))

    for column, held in enumerate(series.window(start, end, columns)):
        left = start + (end - start) * column // columns
        right = start + -(-(end - start) * (column + 1) // columns)
        near = reachable(samples, left, right)
        if held is None:
            assert not [
                sample
                for sample in samples
                if left <= sample[0] < right and column_of_is(sample, start, end, columns, column)
            ]
        else:
            assert held[0] in {low for _, low, _ in near}
            assert held[1] in {high for _, _, high in near}


def column_of_is(sample: Sample, start: int, end: int, columns: int, column: int) -> bool:
    return column_of(sample[0], start, end, columns) == column


def reachable(samples: list[Sample], left: int, right: int) -> list[Sample]:
    """Samples in [left, right), and those that share a bucket of the coarsest level in use with one around it."""
    widest = FANOUT
    while widest * 4 < len(samples):
        widest *= FANOUT
    inside = [place for place, sample in enumerate(samples) if left <= sample[0] < right]
    before = [place for place, sample in enumerate(samples) if sample[0] < left]
    first = (inside[0] if inside else (before[-1] if before else 0)) - widest
    last = (inside[-1] if inside else (before[-1] if before else 0)) + widest
    return samples[max(0, first) : last + 1]


@settings(max_examples=100, deadline=None)
@given(histories())
def test_samples_that_come_again_change_nothing(samples: list[Sample]) -> None:
    """A history that is sent twice, as after a reconnection, is the same history."""
    once, twice = filled(samples, 32), filled(samples + samples, 32)

    assert once.window(0, samples[-1][0] + 1, 17) == twice.window(0, samples[-1][0] + 1, 17)


@settings(max_examples=100, deadline=None)
@given(histories(), st.integers(0, 20_000))
def test_around_gives_the_neighbours(samples: list[Sample], instant: int) -> None:
    """The last sample at or before an instant and the first after it."""
    before, after = filled(samples, 1000).around(instant)

    earlier = [(time_ns, low) for time_ns, low, _ in samples if time_ns <= instant]
    later = [(time_ns, low) for time_ns, low, _ in samples if time_ns > instant]
    assert before == (earlier[-1] if earlier else None)
    assert after == (later[0] if later else None)


def test_days_at_ten_a_second_stay_small_and_quick() -> None:
    """Two days of samples: a few MB, and a window costs the same at every zoom."""
    series = Series()
    spike: Optional[int] = None
    for index in range(2 * 24 * 3600 * 10 // 4):  # half a day; the levels above only grow more slowly
        value = 1000
        if index == 123_456:
            spike, value = index * 100_000_000, 9999
        series.append(index * 100_000_000, value)
    assert spike is not None
    end = series.last_time_ns or 0

    costs = []
    for width in (60, 600, 6000, 43200):
        begun = time.perf_counter()
        for _ in range(5):
            series.window(end - width * 1_000_000_000, end + 1, 200)
        costs.append((time.perf_counter() - begun) / 5)

    assert max(high for held in series.window(0, end + 1, 80) if held for high in held[1:]) == 9999
    assert sum(len(level.starts) * 32 for level in series._levels) < 3_000_000
    assert max(costs) < 0.05
