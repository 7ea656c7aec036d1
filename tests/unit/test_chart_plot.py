"""Scales, columns and cells of the chart, without a screen."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memtui.session.history import Series
from memtui.session.phases import PhaseHistory
from memtui.session.session import Session
from memtui.tui import roles
from memtui.tui.glyphs import ASCII, UNICODE, Glyphs
from memtui.tui.look import make
from memtui.tui.palette import DARK
from memtui.tui.plot.cells import Cell, Ground, column, dots, ground, row_of
from memtui.tui.plot.frame import TimeSpan, phase_strip, time_axis
from memtui.tui.plot.scale import SPANS, ago, clock_ticks, closest_span, round_top, scale
from memtui.tui.plot.track import HOLD_NS, Track, bridge
from memtui.tui.plot.window import Window
from memtui.wire.frames import PHASES, Frame

GIB = 1 << 30
SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("gib", "rows", "labels"),
    [
        (80, 16, ["0", "16", "32", "48", "64", "80"]),
        (80, 8, ["0", "40", "80"]),
        (24, 15, ["0", "8", "16", "24"]),
        (23, 15, ["0", "5", "10", "15", "20"]),
        (24, 12, ["0", "8", "16", "24"]),
        (16, 20, ["0", "4", "8", "12", "16"]),
        (2, 6, ["0", "1", "2"]),
    ],
)
def test_ticks_are_round_and_reach_the_top_where_they_can(gib: int, rows: int, labels: list[str]) -> None:
    made = scale(gib * GIB, rows)
    assert made.unit == "GiB"
    assert [label for _, label in made.ticks] == labels


@pytest.mark.parametrize(
    ("mib", "rows", "labels"),
    [
        (1024, 16, ["0", "256", "512", "768", "1,024"]),
        (1536, 16, ["0", "512", "1,024", "1,536"]),
        (1024, 9, ["0", "512", "1,024"]),
        (2048, 16, ["0", "512", "1,024", "1,536", "2,048"]),
    ],
)
def test_a_small_scale_is_told_in_a_unit_with_ticks_to_see(mib: int, rows: int, labels: list[str]) -> None:
    made = scale(mib << 20, rows)
    assert made.unit == "MiB"
    assert [label for _, label in made.ticks] == labels


@settings(max_examples=500)
@given(st.integers(1, 2**45), st.integers(9, 60))
def test_there_are_always_three_ticks(top: int, rows: int) -> None:
    made = scale(round_top(top), rows)
    assert len(made.ticks) >= 3
    assert all(len(label) <= 5 for _, label in made.ticks)


@settings(max_examples=500)
@given(st.integers(1, 2**45), st.integers(2, 60))
@example(2_097_153, 3)
def test_ticks_never_crowd_and_never_leave_the_scale(top: int, rows: int) -> None:
    made = scale(top, rows)
    values = [value for value, _ in made.ticks]
    assert values[0] == 0
    assert values == sorted(set(values))
    assert values[-1] <= top
    assert len(values) <= max(1, rows // 3) + 1


@given(st.integers(0, 2**45))
def test_a_round_top_leaves_air_but_not_much(value: int) -> None:
    top = round_top(value)
    assert top >= value
    assert top <= max(2048, value * 2)


def test_time_ticks_are_round_and_from_left_to_right() -> None:
    assert clock_ticks(120, 77) == [120, 90, 60, 30]
    assert clock_ticks(604_800, 90) == [518_400, 345_600, 172_800]
    assert [ago(seconds) for seconds in (60, 300, 330, 5400, 90_000)] == [
        "60 s",
        "5 m",
        "5 m 30 s",
        "1 h 30 m",
        "1 d 1 h",
    ]


def test_rows_and_dots_at_the_edges() -> None:
    assert row_of(80, 80, 10) == 0
    assert row_of(0, 80, 10) == 9
    assert row_of(81, 80, 10) == -1
    assert dots(0, 80, 40) == 0
    assert dots(1, 10**9, 40) == 1
    assert dots(80, 80, 40) == 40


def test_a_column_is_solid_to_its_least_and_bright_to_its_most() -> None:
    empty = ground(4, [])
    text, role = column(Cell((4, 12), (4, 12), None, None, None, None), empty, 16, 4, UNICODE)
    assert text == " ⣿⣿⣿"
    assert role == " " + roles.ENVELOPE * 2 + roles.ALLOCATED
    text, role = column(Cell((4, 12), (4, 12), None, None, None, None), empty, 16, 4, ASCII)
    assert text == " ::#"


def test_a_spike_in_one_half_is_seen() -> None:
    text, _ = column(Cell((4, 16), (4, 4), None, None, None, None), ground(4, []), 16, 4, UNICODE)
    assert text == "⡇⡇⡇⣿"


def test_lines_step_with_corners() -> None:
    flat = ground(4, [])
    text, _ = column(Cell(None, None, 1, 3, None, None), flat, 16, 4, UNICODE)
    assert text == " ┏┃┛"
    text, _ = column(Cell(None, None, 3, 1, None, None), flat, 16, 4, UNICODE)
    assert text == " ┓┃┗"


def test_short_gaps_hold_the_value_and_long_ones_stay() -> None:
    held = bridge([(1, 5), None, None, (3, 9)], 2, 99, 9)
    assert held == [(1, 5), (3, 3), (3, 3), (3, 9)]
    assert bridge([(1, 5), None, (7, 9)], 2, 99, 9)[1] == (5, 5)
    assert bridge([(1, 5), None, None, (3, 9)], 1, 99, 9)[1:3] == [None, None]
    assert bridge([(1, 5), None, None, None], 3, 2, 4) == [(1, 5), (4, 4), (4, 4), None]


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(3, 90), st.sampled_from([40, 100, 250, 700]))
def test_columns_kept_up_to_date_are_no_worse_than_columns_made_anew(seed: int, count: int, step_ms: int) -> None:
    """GIVEN a series that grows WHEN the window moves on with it THEN every sample is in its column, as in the full
    way; what else is in it is of the columns beside it.
    """
    chance = random.Random(seed)
    series, track = Series(capacity=256), Track()
    samples: list[tuple[int, int]] = []
    step = step_ms * 1_000_000
    now = 10 * SECOND
    for _ in range(40):
        for _ in range(chance.randrange(0, 12)):
            now += chance.randrange(1_000_000, 150_000_000)
            samples.append((now, chance.randrange(GIB)))
            series.append(*samples[-1])
        now += chance.choice((0, 0, 0, 300_000_000))
        first = now // step - count + 1
        kept = track.columns(series, first, count, step, now)
        full = Track().columns(series, first, count, step, now)
        for place, (cheap, anew) in enumerate(zip(kept, full)):
            exact = [value for time_ns, value in samples if time_ns // step == first + place]
            assert (cheap is None) == (anew is None)
            near = [value for time_ns, value in samples if abs(time_ns // step - first - place) <= 1]
            if exact and cheap and anew:
                assert min(near) <= cheap[0] <= min(exact)
                assert max(near) >= cheap[1] >= max(exact)


def test_a_window_that_ended_before_the_newest_sample_moves_on() -> None:
    series, track = Series(), Track()
    for second in range(151):
        series.append(second * SECOND, 100 + second)
    end = 150 * SECOND
    track.columns(series, 0, 100, SECOND, end)
    assert track.columns(series, 60, 100, SECOND, end) == Track().columns(series, 60, 100, SECOND, end)


#: How far the window moves, how wide it is, how many samples come meanwhile.
_MOVES = st.tuples(st.integers(-40, 90), st.sampled_from((100, 100, 100, 7, 1)), st.integers(0, 20))


@settings(max_examples=200)
@given(st.lists(_MOVES, min_size=1, max_size=12), st.integers(0, 200), st.sampled_from((1, 2)))
def test_columns_kept_are_those_asked_for_anew(moves: list[tuple[int, int, int]], begun: int, step_s: int) -> None:
    """GIVEN samples that still come WHEN the window goes anywhere in any size THEN nothing shows of where it was."""
    series, track = Series(), Track()
    second = first = 0
    for move, count, more in moves:
        first += move
        for _ in range(more + (0 if second else begun)):
            series.append(second * SECOND, 1_000 + second * 7919 % 1_000)
            second += 1
        step = step_s * SECOND
        kept = track.columns(series, first, count, step, second * SECOND)
        assert len(kept) == count
        assert kept == Track().columns(series, first, count, step, second * SECOND)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from(SPANS))
def test_a_spike_is_in_the_picture_at_every_zoom(seed: int, span: int) -> None:
    """GIVEN a day of samples with one spike WHEN it is looked at from any distance THEN the spike is there."""
    chance = random.Random(seed)
    series = Series()
    count = 5_000
    place = chance.randrange(count)
    for index in range(count):
        series.append((index + 1) * SECOND, 50 * GIB if index == place else GIB)
    cells = 70
    spike_ns = (place + 1) * SECOND
    cell = Window(span=SPANS.index(span)).cell_ns(cells, 0)
    window = Window(span=SPANS.index(span)).at(spike_ns, cells, 0, count * SECOND)
    end = count * SECOND if window.end_ns is None else window.end_ns
    half = cell // 2
    first = 2 * (end // cell - cells + 1)
    columns = Track().columns(series, first, 2 * cells, half, end, close=window.close(0))
    assert max(found[1] for found in columns if found) == 50 * GIB


def test_as_close_as_there_are_samples_to_see() -> None:
    closest = [closest_span(spacing and spacing * 1_000_000) for spacing in (None, 1_000, 100, 20, 5)]
    assert [SPANS[place] for place in closest] == [5, 5, 1, 0.2, 0.1]
    window = Window(span=SPANS.index(5))
    assert SPANS[window.zoomed(-1, 0, 0, 70, closest[2]).index(0)] == 2
    assert SPANS[window.zoomed(-9, 0, 0, 70, closest[2]).index(0)] == 1
    assert window.zoomed(-9, 0, 0, 70) == window
    # Where samples have become fewer meanwhile, it does not jump.
    assert SPANS[Window(span=0).zoomed(-1, 0, 0, 70, closest[1]).index(0)] == SPANS[0]


def test_the_cursor_stays_in_sight_when_a_live_window_is_zoomed() -> None:
    now, cells = 1_000 * SECOND, 70
    window = Window(span=SPANS.index(60)).at(now - 50 * SECOND, cells, 0, now)
    assert window.end_ns is None
    close = window.zoomed(-9, 0, now, cells, 0)
    assert close.end_ns is not None
    cell = close.cell_ns(cells, 0)
    assert close.end_ns // cell - cells < (now - 50 * SECOND) // cell <= close.end_ns // cell
    assert close.zoomed(9, 0, now, cells, 0).end_ns is None


def test_close_by_what_was_not_read_is_told_from_what_was() -> None:
    """GIVEN samples with gaps WHEN each column is shorter than they THEN those between have the last value, and say so;
    a peak that was counted since the last sample stays where it was counted, and an old value ends.
    """
    step = SECOND // 100
    series = Series()
    series.append(5 * step, 3 * GIB)
    series.append(15 * step, GIB, 9 * GIB)
    series.append(18 * step, 2 * GIB)
    track = Track()
    columns = track.columns(series, 10, 12, step, 20 * step, close=True)
    assert track.sampled() == [place in (15, 18) for place in range(10, 22)]
    held, low = (3 * GIB, 3 * GIB), (GIB, GIB)
    two = (2 * GIB, 2 * GIB)
    assert columns == [*[held] * 5, (GIB, 9 * GIB), low, low, two, two, two, None]
    later = Track().columns(series, 18, 400, step, 10_000 * step, close=True)
    assert later[HOLD_NS // step] == two
    assert set(later[HOLD_NS // step + 1 :]) == {None}


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_a_column_that_was_not_read_has_its_height_only(glyphs: Glyphs) -> None:
    flat = Ground(" " * 4, " " * 4)
    same = (11, 11)
    text, _ = column(Cell(same, same, None, None, None, None, True), flat, 16, 4, glyphs)
    assert text.count(" ") == 3
    assert text[1] == ("⠒" if glyphs.braille else "_")
    assert column(Cell(same, same, None, None, None, None), flat, 16, 4, glyphs)[0].count(" ") == 1


def test_a_close_axis_tells_parts_of_a_second() -> None:
    look = make(DARK, UNICODE, "truecolor")
    span = TimeSpan(last=99, cells=80, cell_ns=2_500_000)
    row = time_axis(span, None, SECOND, "now", 1_772_366_400 * SECOND, look)
    assert "−100 ms" in row.text
    assert row.text.endswith(".250")


def test_phases_of_short_steps_are_known_where_frames_tell_them_only() -> None:
    """GIVEN frames of a tenth of a second, and steps that are shorter THEN what was between two frames is not known; in
    longer steps a phase lasts until the one that follows it.
    """

    def frame(ms: int, step: int, phase: str, since_ms: int) -> Frame:
        return Frame(ms, ms * 1_000_000, 0, step, phase, since_ms * 1_000_000, ())

    session = Session(1)
    for told in (frame(100, 2, "forward", 90), frame(200, 4, "backward", 195), frame(300, 4, "backward", 195)):
        session.apply(told, 0)
    session.apply(frame(400, 4, "optimizer", 350), 0)
    found = {ms: session.phases.at(ms * 1_000_000) for ms in (95, 100, 150, 194, 195, 250, 340, 360)}
    assert found == {
        **{95: "forward", 100: "forward", 150: None, 194: None},
        **{195: "backward", 250: "backward", 340: "backward", 360: "optimizer"},
    }


def test_the_window_grows_with_the_session() -> None:
    window = Window()
    assert [SPANS[window.index(age * SECOND)] for age in (0, 59, 61, 10_000)] == [60, 60, 120, 120]


def test_moving_the_cursor_moves_the_window_only_at_its_edges() -> None:
    cells, now = 50, 1_000 * SECOND
    window = Window(span=SPANS.index(60))
    cell = window.cell_ns(cells, 0)
    moved = window.moved(-10, cells, 0, 0, now)
    assert moved.end_ns is None
    far = moved.moved(-100, cells, 0, 0, now)
    assert far.end_ns is not None
    assert far.cursor_ns is not None
    assert far.end_ns // cell - far.cursor_ns // cell == cells - 1
    assert far.moved(+200, cells, 0, 0, now) == window.live()
    assert window.moved(-10_000, cells, 0, 990 * SECOND, now).cursor_ns == 990 * SECOND


def test_the_strip_of_phases_has_a_letter_for_each() -> None:
    """Also in ASCII; where steps are too short to be told apart, what lasts longer is shown beside the words."""
    history = PhaseHistory()
    for second, phase in enumerate(PHASES):
        history.append(second * SECOND, phase, (second + 1) * SECOND)
    span = TimeSpan(last=len(PHASES) - 1, cells=len(PHASES), cell_ns=SECOND)
    assert phase_strip(span, history, None, UNICODE).text == " phase sfbo·ecm"
    row = phase_strip(span, history, 10 * SECOND, ASCII)
    assert row.text == " phase sfbo.ecm"
    assert len(set(row.roles[7:])) == len(PHASES)
    assert phase_strip(span, history, SECOND // 10, ASCII).text == " phase      ecm"
