"""A recorded step: what was allocated at each instant, and what it was made of."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis import recorded_words, units
from memtui.analysis.events import event_text
from memtui.analysis.recorded import StepTimeline
from memtui.analysis.recorded_groups import GROUPINGS, NO_MODULE, OLDER_SITE, REST, ROOT_MODULE, groups
from memtui.wire.frames import CATEGORIES, Event, Mark, RecordedStep
from tests.support.recorded import MIB, by_hand, gpt
from tests.support.sessions import Run

PARAMETERS, GRADIENTS, ACTIVATIONS, TEMPORARIES = (
    CATEGORIES.index(name) for name in ("parameters", "gradients", "activations", "temporaries")
)


@st.composite
def steps(draw: st.DrawFn) -> RecordedStep:
    """Any step: blocks that were there, that come and go, in categories known and unknown; and a rest."""
    count = draw(st.integers(0, 30))
    alive: list[int] = []
    blocks: list[list[int]] = []
    places = st.integers(-1, 3)
    for born in [-1] * draw(st.integers(0, 4)):
        blocks.append([born, -1, draw(st.integers(0, 1000)), *(draw(places) for _ in range(4))])
        alive.append(len(blocks) - 1)
    for event in range(count):
        if alive and draw(st.booleans()):
            blocks[alive.pop(draw(st.integers(0, len(alive) - 1)))][1] = event
        else:
            alive.append(len(blocks))
            blocks.append([event, -1, draw(st.integers(0, 1000)), *(draw(places) for _ in range(4))])
    before = sum(block[2] for block in blocks if block[0] < 0) + draw(st.integers(-50, 50))
    return by_hand(
        blocks,
        count,
        before_bytes=before,
        categories=("parameters", "activations", "something new"),
        names=("a.0.w", "a.1.w"),
        sites=("f.py:1 g", "f.py:2 h\nm.py:3 main"),
        modules=("", "a", "a.0"),
    )


def counted(step: RecordedStep, instant: int) -> int:
    """What is allocated at an instant, straight from the definition."""
    moved = [(block[0], block[2]) for block in step.blocks if block[0] >= 0]
    moved += [(block[1], -block[2]) for block in step.blocks if block[1] >= 0]
    return step.before_bytes + sum(size for event, size in moved if event < instant)


@given(steps())
@settings(max_examples=60)
def test_at_every_instant_categories_and_groups_add_up(step: RecordedStep) -> None:
    timeline = StepTimeline(step)
    assert len(timeline.totals) == len(step.event_us) + 1
    for instant, total in enumerate(timeline.totals):
        assert total == counted(step, instant)
        assert sum(timeline.composition(instant)) == total
        for by in GROUPINGS:
            found = groups(timeline, instant, by)
            assert sum(group.size_bytes for group in found if group.depth == 0) == total
            assert all(sum(held for _, held in group.parts) == group.size_bytes for group in found)
    assert timeline.totals[timeline.peak] == max(timeline.totals)


@given(steps(), st.integers(1, 60), st.booleans())
@settings(max_examples=60)
def test_columns_lose_no_maximum(step: RecordedStep, cells: int, evenly: bool) -> None:
    timeline = StepTimeline(step)
    last = timeline.last + 1
    edges = sorted({0, last} | {index * last // cells for index in range(cells)}) if evenly else [0, last]
    columns = timeline.columns(edges)
    assert len(columns) == len(edges) - 1
    for column, first, end in zip(columns, edges, edges[1:]):
        assert sum(column.composition) == max(timeline.totals[first:end])
        assert first <= column.instant < end


def test_an_empty_column_shows_what_held() -> None:
    timeline = StepTimeline(by_hand([(0, 1, 7, 0), (2, -1, 9, 0)], 3))
    assert [column.instant for column in timeline.columns([0, 2, 2, 2, 4])] == [1, 1, 1, 3]


def test_the_peak_has_an_instant_a_phase_and_the_allocators_word() -> None:
    blocks = [
        (-1, -1, 100 * MIB, PARAMETERS),
        (0, 2, 30 * MIB, ACTIVATIONS),
        (1, 3, 20 * MIB, TEMPORARIES),
        (4, -1, 10 * MIB, GRADIENTS),
    ]
    marks = (Mark(0, "forward"), Mark(1, "backward"), Mark(4, "between"))
    timeline = StepTimeline(by_hand(blocks, 5, marks=marks, counted_peak_bytes=150 * MIB))
    assert timeline.peak == 2
    assert timeline.time_us(2) == 1000
    assert timeline.phase(2) == "backward"
    assert recorded_words.peak_line(timeline) == (
        "peak 150.0 MiB in backward, 1.0 ms into step 4: 67 % parameters, 20 % activations, 13 % temporaries"
    )
    level, words = recorded_words.check_line(timeline)
    assert (level, words) == ("good", "exactly the allocator's own peak · 5 events in 5.0 ms · cost 1.0 ms")


@pytest.mark.parametrize(
    ("fields", "level", "words"),
    [
        ({"counted_peak_bytes": 12 * MIB}, "warning", "the allocator counted 12.0 MiB, 2.0 MiB more"),
        ({"counted_peak_bytes": 9 * MIB}, "warning", "the allocator counted 9.0 MiB, 1.0 MiB less"),
        ({}, "unknown", "did not rise in this step"),
        ({"lost_events": 1200, "counted_peak_bytes": 10 * MIB}, "warning", "1,200 older events were lost"),
    ],
)
def test_a_peak_that_the_allocator_does_not_confirm_says_so(fields: dict[str, int], level: str, words: str) -> None:
    timeline = StepTimeline(by_hand([(0, -1, 10 * MIB, 0)], 1, **fields))
    found, text = recorded_words.check_line(timeline)
    assert found == level
    assert words in text


def test_groups_by_tensor_else_by_call_site() -> None:
    blocks = [
        (-1, -1, 40, PARAMETERS, 0, -1, 1),
        (-1, -1, 30, PARAMETERS, 1, -1, 2),
        (0, 6, 50, ACTIVATIONS, -1, 0, 1),
        (1, 5, 50, ACTIVATIONS, -1, 0, 2),
        (2, -1, 20, GRADIENTS, 2, 1, 1),
        (3, 4, 5, TEMPORARIES, -1, -1, -1),
    ]
    step = by_hand(
        blocks,
        7,
        marks=(Mark(0, "forward"), Mark(2, "backward")),
        names=("layers.0.weight", "layers.1.weight", "layers.0.weight (gradient)"),
        sites=("/a/b/model.py:7 forward\n/t/module.py:1 _call_impl\n/a/train.py:3 main", "/a/train.py:4 main"),
        modules=("", "layers.0", "layers.1"),
    )
    timeline = StepTimeline(step)
    instant = 4  # all are alive
    assert [(group.label, group.size_bytes, group.count) for group in groups(timeline, instant, "tensor")] == [
        ("model.py:7 forward ← train.py:3 main", 100, 2),
        ("layers.0.weight", 40, 1),
        ("layers.1.weight", 30, 1),
        ("layers.0.weight (gradient)", 20, 1),
        ("in backward, by no line of Python", 5, 1),
    ]
    assert [(group.label, group.size_bytes) for group in groups(timeline, instant, "alike")] == [
        ("model.py:7 forward ← train.py:3 main", 100),
        ("layers.*.weight", 70),
        ("layers.*.weight (gradient)", 20),
        ("in backward, by no line of Python", 5),
    ]
    assert [(group.label, group.size_bytes) for group in groups(timeline, instant, "site")] == [
        ("model.py:7 forward ← train.py:3 main", 100),
        (OLDER_SITE, 70),
        ("train.py:4 main", 20),
        ("in backward, by no line of Python", 5),
    ]
    assert [(group.label, group.size_bytes) for group in groups(timeline, instant, "module")] == [
        ("layers.0", 110),
        ("layers.1", 80),
        (NO_MODULE, 5),
    ]
    assert [(group.depth, group.label, group.size_bytes) for group in groups(timeline, instant, "tree")] == [
        (0, ROOT_MODULE, 190),
        (1, "layers", 190),
        (2, "0", 110),
        (2, "1", 80),
        (0, NO_MODULE, 5),
    ]
    first = groups(timeline, instant, "tensor")[0]
    assert (first.phase, first.born_us, first.died_us, first.category) == ("forward", 0, 6000, "activations")
    assert first.site == ("/a/b/model.py:7 forward", "/t/module.py:1 _call_impl", "/a/train.py:3 main")
    weight = groups(timeline, instant, "tensor")[1]
    assert (weight.phase, weight.born_us, weight.died_us, weight.module) == ("", None, None, "layers.0")


def test_a_name_tells_the_module_of_what_was_there_before() -> None:
    blocks = [(-1, -1, 4, 0, 0, -1, -1), (-1, -1, 3, 3, 1, -1, -1), (-1, -1, 2, 0, 2, -1, -1), (0, -1, 1, 4, -1, -1, 0)]
    names = ("layers.0.weight", "layers.0.weight exp_avg", "scale")
    timeline = StepTimeline(by_hand(blocks, 1, names=names, modules=("layers",)))
    found = [(group.label, group.size_bytes) for group in groups(timeline, 1, "module")]
    assert found == [("layers.0", 7), (ROOT_MODULE, 2), ("layers", 1)]


def test_without_a_site_and_a_phase_nothing_is_said() -> None:
    assert groups(StepTimeline(by_hand([(0, -1, 5, 0)], 1)), 1, "site")[0].label == "call site unknown"


def test_what_is_in_no_block_has_a_row_of_its_own() -> None:
    timeline = StepTimeline(by_hand([(-1, -1, 40, 0), (0, -1, 5, 0)], 1, before_bytes=100))
    assert timeline.totals == [100, 105]
    largest = groups(timeline, 1, "tensor")[0]
    assert (largest.label, largest.size_bytes) == (REST, 60)
    assert dict(zip(timeline.categories, timeline.composition(1)))["unattributed"] == 60


def test_blocks_that_make_no_sense_are_left_out_and_unknown_places_are_unknown() -> None:
    blocks = (
        (0, -1, 10, 99, 99, 99, 99),
        (1,),
        (5, 3, 10, 0, 0, 0, 0),
        (77, -1, 10, 0, 0, 0, 0),
        (-9, 400, 3, -7, -1, -1, -1),
    )
    timeline = StepTimeline(replace(by_hand((), 2), blocks=blocks, before_bytes=3))
    assert timeline.totals == [3, 13, 13]
    assert dict(zip(timeline.categories, timeline.composition(2)))["unattributed"] == 13


def test_text_of_the_program_is_harmless() -> None:
    step = by_hand(
        [(0, -1, 10, 0, 0, 0, 0)],
        1,
        names=("w\x1b[2J\nx",),
        sites=("f.py:1 \x1b]0;t\x07g\u202e",),
        modules=("m\x07",),
        categories=("new\x1b[31m",),
        notices=("n\x1b[1m\n",),
    )
    timeline = StepTimeline(step)
    texts = [group.label + "".join(group.site) + group.module for by in GROUPINGS for group in groups(timeline, 1, by)]
    texts += [*timeline.categories, *recorded_words.notice_lines(timeline), recorded_words.peak_line(timeline)]
    assert all(character.isprintable() for text in texts for character in text)
    assert "w x" in texts[1]


def test_an_empty_step_has_its_beginning_as_peak() -> None:
    timeline = StepTimeline(by_hand([(-1, -1, 10 * MIB, 0)], 0))
    assert timeline.totals == [10 * MIB]
    assert recorded_words.peak_line(timeline) == "peak 10.0 MiB at the beginning of step 4: 100 % parameters"


def test_a_hundred_thousand_events_take_no_longer_than_sorting_them_some_times() -> None:
    chance = random.Random(1)
    alive: list[int] = []
    blocks: list[list[int]] = []
    for event in range(100_000):
        if alive and chance.random() < 0.5:
            blocks[alive.pop(chance.randrange(len(alive)))][1] = event
        else:
            alive.append(len(blocks))
            blocks.append([event, -1, chance.randrange(1 << 20), event % 9, event % 300, event % 200, event % 50])
    names, sites = (tuple(f"layers.{index}.{kind}" for index in range(300)) for kind in ("weight", "py:3 f"))
    step = by_hand(blocks, 100_000, names=names, sites=sites, modules=tuple(f"layers.{n}" for n in range(50)))

    def show() -> None:
        timeline = StepTimeline(step)
        timeline.columns([index * (timeline.last + 1) // 110 for index in range(111)])
        for by in GROUPINGS:
            groups(timeline, timeline.peak, by)

    def sort() -> None:
        sorted((row[0], row[2], row[3]) for row in blocks for _ in range(4))

    # Of one machine at one time, and the best of a few: some six times as long, half a second where that is slow.
    assert _least_seconds(show) < 15 * _least_seconds(sort)


def _least_seconds(action: Callable[[], None]) -> float:
    taken = []
    for _ in range(3):
        begun = time.process_time()
        action()
        taken.append(time.process_time() - begun)
    return min(taken)


def test_the_events_about_it_have_words() -> None:
    figures = {"events": 883, "cost_ns": 1_100_000, "peak_bytes": 150 * MIB}
    assert event_text(Event("recorded", 1, 41, "between", "cuda:0", figures)) == (
        "step 42 recorded: peak allocated 150.0 MiB · 883 events · cost 1.1 ms"
    )
    refused = Event("record_refused", 1, 41, "between", text="the program records\x1b[1m a history of its own")
    assert event_text(refused) == "no step recorded: the program records a history of its own"


def test_why_no_step_can_be_recorded() -> None:
    run = Run()
    assert recorded_words.cannot_record(run.session, replay=False) is None
    assert "this is a recording" in (recorded_words.cannot_record(run.session, replay=True) or "")
    run.session.set_connection("lost", "the agent closed the connection")
    assert "the agent closed the connection" in (recorded_words.cannot_record(run.session, replay=False) or "")
    run.session.ended(1, 0)
    assert "has ended" in (recorded_words.cannot_record(run.session, replay=False) or "")


def test_moments_are_told_to_a_tenth_of_a_millisecond() -> None:
    assert [units.moment(value) for value in (0, 149, 12_345, 999_949, 999_950, 20_400_123, None)] == [
        "0.0 ms",
        "0.1 ms",
        "12.3 ms",
        "999.9 ms",
        "1.000 s",
        "20.400 s",
        "–",
    ]


def test_the_made_up_step_peaks_in_backward() -> None:
    timeline = StepTimeline(gpt())
    assert timeline.phase(timeline.peak) == "backward"
    assert timeline.totals[timeline.peak] == timeline.recorded.counted_peak_bytes
