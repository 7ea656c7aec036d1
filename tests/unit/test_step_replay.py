"""Steps written down by hand, done again by the simulated allocator."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from memtui.analysis.allocator.course import Addition, Course, prepared
from memtui.analysis.allocator.replay import Replayed, StepReplay, replayed
from memtui.analysis.allocator.settings import Settings, settings_from
from memtui.analysis.steady import steady, steady_lines
from memtui.wire import codec
from memtui.wire.frames import CATEGORIES, RecordedHeap, RecordedStep
from tests.support.recorded import by_hand

MIB = 1 << 20
UNITS = MIB // 512
BASE = 1 << 40
PARAMETERS, GRADIENTS, STATE, TEMPORARIES, INPUTS = (
    CATEGORIES.index(name) for name in ("parameters", "gradients", "optimizer_state", "temporaries", "inputs")
)


def made(
    rows: Sequence[tuple[int, int, int, int, int]], events: int, *segments: tuple[int, int], **heap: Any
) -> RecordedStep:
    """Rows are (born, died, MiB, category, place in MiB); segments (place, size) in MiB, all of large blocks."""
    given = {
        "base_address": BASE,
        "segments": tuple((place * UNITS, size * UNITS, 0, 0, 0, 0) for place, size in segments),
        "places": tuple(row[4] * UNITS for row in rows),
        "asked_bytes": tuple(row[2] * MIB for row in rows),
    }
    blocks = [(born, died, size * MIB, category) for born, died, size, category, _ in rows]
    return by_hand(blocks, events, heap=RecordedHeap(**{**given, **heap}))


#: Parameters, and a gradient that the step frees at its beginning and makes again.
USUAL = made(
    [(-1, -1, 32, PARAMETERS, 0), (-1, 0, 32, GRADIENTS, 32), (1, 3, 64, TEMPORARIES, 64), (2, -1, 32, GRADIENTS, 32)],
    4,
    *((0, 32), (32, 32), (64, 64)),
)


def test_what_a_step_leaves_the_next_one_frees() -> None:
    found = replayed(USUAL)
    assert found.exact
    assert found.settled
    assert (found.start_allocated_bytes, found.start_reserved_bytes) == (64 * MIB, 128 * MIB)
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes) == (128 * MIB, 128 * MIB)
    assert found.growth_bytes == 0


def test_what_piles_up_grows_step_by_step() -> None:
    """A block that stays and is of no kind that lasts is made in each step, and no step is as one before."""
    found = replayed(made([(-1, -1, 32, PARAMETERS, 0), (0, -1, 16, TEMPORARIES, 32)], 1, (0, 32)), steps=5)
    assert not found.settled
    assert len(found.steps) == 5
    assert found.growth_bytes == 16 * MIB
    assert found.peak_allocated_bytes == (32 + 5 * 16) * MIB


def test_what_appears_and_lasts_is_made_once() -> None:
    found = replayed(made([(-1, -1, 32, PARAMETERS, 0), (0, -1, 16, STATE, 32)], 1, (0, 32)))
    assert found.settled
    assert found.peak_reserved_bytes == 48 * MIB


def test_a_batch_of_another_size_takes_the_place_of_the_last() -> None:
    found = replayed(made([(-1, 1, 16, INPUTS, 0), (0, -1, 24, INPUTS, 16)], 2, (0, 16)))
    assert found.growth_bytes == 0
    assert found.settled
    assert found.peak_allocated_bytes == 48 * MIB  # both at once, from the second step on of the larger size


def test_additions_come_once_and_stay() -> None:
    """State that is still to come: made at its event in the first step, under all that follows."""
    found = replayed(USUAL, [Addition(3, 32 * MIB), Addition(3, 32 * MIB)])
    first, last = found.steps[0], found.steps[-1]
    assert first.allocated_bytes == last.allocated_bytes == (64 + 64) * MIB
    assert last.peak_allocated_bytes == (128 + 64) * MIB
    assert found.peak_reserved_bytes == 192 * MIB
    assert found.settled


def from_empty(step: RecordedStep, **options: Any) -> Replayed:
    replay = StepReplay(prepared(step), from_empty=True, **options)
    list(replay.run())
    return replay.result


def test_from_empty_it_is_as_in_a_new_process() -> None:
    """What was there comes first, without what is `absent`; the cache that had grown before is not there."""
    assert from_empty(USUAL).start_reserved_bytes == 64 * MIB
    assert from_empty(USUAL, absent=[1]).start_reserved_bytes == 32 * MIB
    assert from_empty(USUAL).peak_reserved_bytes == 128 * MIB


def test_a_request_that_does_not_fit_ends_it() -> None:
    failure = from_empty(USUAL, capacity_bytes=120 * MIB).failure
    assert failure is not None
    assert (failure.step, failure.asked_bytes) == (1, 32 * MIB)  # the next gradient
    assert failure.free_bytes == 0  # the old one had gone back to the device
    assert from_empty(USUAL, capacity_bytes=128 * MIB).failure is None


def test_which_segment_is_older_is_learnt() -> None:
    """Three free segments are alike; torch took the middle one, then the highest: neither rises nor falls."""
    rows = [(0, -1, 16, PARAMETERS, 16), (1, -1, 16, PARAMETERS, 32), (2, -1, 16, PARAMETERS, 0)]
    found = replayed(made(rows, 3, (0, 16), (16, 16), (32, 16)))
    assert found.compared == 3
    assert found.exact


def test_other_streams_keep_a_block_until_they_are_done() -> None:
    """One that is freed late cannot be used for the next request; one that is freed at once can."""
    rows = [(0, 1, 16, TEMPORARIES, 0), (2, 3, 16, TEMPORARIES, 16)]
    assert replayed(made(rows, 4, late=((0, 3),))).peak_reserved_bytes == 32 * MIB
    assert replayed(made(rows, 4)).peak_reserved_bytes == 16 * MIB
    apart = made(rows, 4, streams=(0, 1))
    assert replayed(apart).peak_reserved_bytes == 32 * MIB


def test_private_pools_are_left_out_and_an_emptied_cache_is_emptied() -> None:
    rows = [(0, 1, 16, TEMPORARIES, 0), (2, 3, 24, TEMPORARIES, 16)]
    emptied = replayed(made(rows, 4, emptied=(2,)))
    assert emptied.peak_reserved_bytes == 24 * MIB
    private = made(rows, 4, asked_bytes=(-1, 24 * MIB))
    assert replayed(private).peak_allocated_bytes == 24 * MIB


def test_what_it_comes_to_in_words() -> None:
    found = steady(USUAL, replayed(USUAL))
    assert (found.allocated_bytes, found.reserved_bytes, found.exact) == (128 * MIB, 128 * MIB, True)
    line = "peak allocated 128.0 MiB, reserved 128.0 MiB predicted: step 4 done again by the allocator's rules"
    assert steady_lines(found) == steady_lines(found, 128 * MIB) == (line,)
    more = "since then 130.0 MiB were reserved: not all steps are like that one"
    assert steady_lines(found, 130 * MIB) == (line, more)
    growing = made([(-1, -1, 32, PARAMETERS, 0), (0, -1, 16, TEMPORARIES, 40)], 1, (0, 32), (32, 4))
    found = steady(growing, replayed(growing, steps=3))
    assert not found.exact
    assert steady_lines(found)[1:] == ("each step leaves 16.0 MiB more behind",)


def test_a_request_that_fails_for_want_of_one_piece() -> None:
    """16 MiB are free in each of four segments, and 48 MiB are asked for."""
    rows = [(-1, -1, 16, PARAMETERS, 32 * place) for place in range(4)] + [(0, -1, 48, TEMPORARIES, 128)]
    step = made(rows, 1, *((32 * place, 32) for place in range(4)))
    replay = StepReplay(prepared(step), capacity_bytes=160 * MIB)
    list(replay.run())
    found = steady(step, replay.result)
    assert (found.failing_step, found.asked_bytes, found.free_bytes) == (1, 48 * MIB, 64 * MIB)
    assert steady_lines(found)[-1] == (
        "a request of 48.0 MiB would fail in the next step, though 64.0 MiB would be free: in pieces, none of them "
        "large enough"
    )


def test_an_older_agent_says_nothing_of_its_memory() -> None:
    with pytest.raises(ValueError, match="without the allocator's memory"):
        replayed(dataclasses.replace(USUAL, heap=None))
    with pytest.raises(ValueError, match="not prepared"):
        StepReplay(Course(USUAL))


def test_the_message_survives_the_wire() -> None:
    assert codec.from_json(codec.to_json(USUAL)) == USUAL
    assert codec.from_json({**codec.to_json(USUAL), "heap": None}).heap is None


@pytest.mark.parametrize(
    ("asked", "divisions", "expected"),
    [
        (1, 0, 512),
        (513, 0, 1024),
        (1200, 4, 1536),  # not above 512 B a division
        (5 * MIB, 4, 5 * MIB),
        (5 * MIB + 1, 4, 6 * MIB),
        (7 * MIB + 1, 4, 8 * MIB),
    ],
)
def test_rounding(asked: int, divisions: int, expected: int) -> None:
    told = {"roundup_power2_divisions": {str(1 << power): divisions for power in range(16)}}
    assert settings_from(told).rounded(asked) == expected


def test_settings_are_those_that_torch_tells() -> None:
    text = "max_split_size_mb:64, large_segment_size_mb:40,max_non_split_rounding_mb:30"
    told = {"PYTORCH_CUDA_ALLOC_CONF": text, "max_split_size": 64 * MIB, "expandable_segments": True}
    assert settings_from(told) == Settings(64 * MIB, 30 * MIB, 40 * MIB, expandable_segments=True)
    assert settings_from({"max_split_size": -1, "roundup_power2_divisions": {"1": 0}}) == Settings()
