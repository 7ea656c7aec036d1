"""Leaks, told from all else that makes memory rise."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Optional

import pytest

from memtui.analysis.build import build_view
from memtui.analysis.leak import Leak, find_leak, leak_text
from memtui.analysis.policy import DEFAULT
from memtui.analysis.trend import slope, steady_rise
from memtui.session.floors import Floor, Floors
from memtui.session.readings import SteadyStep
from tests.support.sessions import GIB, MIB, Run

Held = tuple[int, Optional[int]]
SECOND = 1_000_000_000
BASE = 4 * GIB
STEPS = 900


def named(
    held: Iterable[Held], *, every: int = 1, headroom: Optional[int] = None, first: int = 0
) -> list[Optional[Leak]]:
    """What is said at each floor from `first` on, where so `every` step is read; a step lasts a second."""
    floors, said = Floors(), []
    for step, (size, blocks) in list(enumerate(held))[::every]:
        floors.add(Floor(step, step * SECOND, size, blocks))
        said.append(find_leak(floors, headroom, DEFAULT) if step >= first else None)
    return said


def noise(seed: int, count: int = STEPS) -> list[Held]:
    """Batches of any length, and lists of any number of targets."""
    chance = random.Random(seed)
    return [(BASE + chance.randrange(600) * MIB, 300 + chance.randrange(12)) for _ in range(count)]


def plus(held: list[Held], size: int, blocks: int, first: int = 0) -> list[Held]:
    """With a leak from one floor on."""
    return [
        (each + size * max(0, place - first), (held_blocks or 0) + blocks * max(0, place - first))
        for place, (each, held_blocks) in enumerate(held)
    ]


def log_of_any_length(seed: int) -> list[Held]:
    """Kept and cleared."""
    chance = random.Random(seed)
    return [(BASE + MIB * n, 300 + n) for _ in range(STEPS // 26) for n in range(chance.randrange(8, 45))]


STEADY: list[Held] = [(BASE, 300)] * STEPS
#: Experts get their state when they are used first: most of them soon, some late.
WARM: list[Held] = [(BASE + 8 * MIB * n, 300 + 2 * n) for n in (round(60 * (1 - 0.95**n)) for n in range(STEPS))]
EVALUATED: list[Held] = [(BASE, 300)] * 150 + [(BASE + GIB, 312)] * (STEPS - 150)
QUIET: dict[str, list[Held]] = {
    "steady": STEADY,
    "warm-up": WARM,
    "variable batches": noise(1),
    "an evaluation leaves something once": EVALUATED,
    "two evaluations leave something": [(BASE + MIB * min(2, n // 60), 300 + min(2, n // 60)) for n in range(STEPS)],
    "a log is cleared": [(BASE + MIB * (n % 40), 300 + n % 40) for n in range(STEPS)],
    "a log of any length is cleared": log_of_any_length(1),
    "one floor stands out now and then": [(BASE + GIB * (n % 31 == 7), 300 + 90 * (n % 31 == 7)) for n in range(STEPS)],
    "longer and longer batches": [(BASE + 4 * MIB * n, 300) for n in range(STEPS)],
    "more blocks of fewer bytes": [(BASE - MIB * n, 300 + n) for n in range(STEPS)],
    "falls": [(BASE - MIB * n, 1300 - n) for n in range(STEPS)],
}


@pytest.mark.parametrize("kind", QUIET)
@pytest.mark.parametrize("every", [1, 3, 20])
def test_no_false_alarm(kind: str, every: int) -> None:
    """At no floor, however many of the steps are read, whether or not the device is nearly full."""
    for headroom in (None, 20 * GIB):
        said = named(QUIET[kind], every=every, headroom=headroom)
        assert said == [None] * len(said)


@pytest.mark.parametrize(
    ("base", "size", "blocks"),
    [
        (STEADY, 4 * MIB, 1),  # outputs
        (STEADY, 4 * MIB, 70),  # graphs
        (noise(2), 10 * MIB, 1),
        (noise(3), 10 * MIB, 70),
        (WARM, 6 * MIB, 1),
        (EVALUATED, 5 * MIB, 2),
    ],
)
def test_a_leak_is_found_within_200_steps(base: list[Held], size: int, blocks: int) -> None:
    """GIVEN one that begins at step 200, at 0.1 % of what is allocated a step or a little more, THEN it is named."""
    said = named(plus(base, size, blocks, 200)[:600], every=2)

    assert said[:101] == [None] * 101
    assert next(leak for leak in said if leak is not None).last_step <= 400
    assert said[200] is not None
    last = said[-1]
    assert last is not None
    assert last.bytes_per_step == pytest.approx(size, rel=0.1)
    assert last.blocks_per_step == pytest.approx(blocks, rel=0.1)


def test_fast_steps_leak_too() -> None:
    """GIVEN steps of a millisecond, of which one in 500 is read, THEN six of them say it."""
    said = named([(BASE + MIB // 5 * n, 300 + n) for n in range(5_000)], every=500)

    assert [leak is not None for leak in said] == [False] * 5 + [True] * 5
    assert said[-1] is not None
    assert said[-1].bytes_per_step == MIB // 5


def test_a_leak_that_ends_is_taken_back() -> None:
    """GIVEN a buffer that fills up and stays, THEN nothing is said of it a hundred steps later."""
    said = named([(BASE + 4 * MIB * min(n, 200), 300 + min(n, 200)) for n in range(400)], every=2)

    assert said[100] is not None
    assert said[150:] == [None] * 50


def test_a_leak_that_leaves_no_time_is_told_early() -> None:
    """GIVEN the device is full in five steps, THEN a dozen read at their beginnings are enough; else a hundred."""
    held = plus(STEADY, 64 * MIB, 1)[:20]

    assert named(held, headroom=100 * GIB) == [None] * 20
    first = next(leak for leak in named(held, headroom=5 * 64 * MIB) if leak is not None)
    assert (first.last_step, first.steps_to_full, first.seconds_to_full) == (11, 5, 5.0)


def test_without_blocks_bytes_alone_say_it() -> None:
    """GIVEN the host, whose heap counts no blocks: a leak, and noise."""
    leaking: list[Held] = [(size, None) for size, _ in plus(STEADY, 4 * MIB, 1)]
    noisy: list[Held] = [(size, None) for size, _ in noise(4)]

    found = named(leaking, every=2)[-1]
    assert found is not None
    assert (found.bytes_per_step, found.blocks_per_step) == (4 * MIB, None)
    assert named(noisy, every=2) == [None] * (STEPS // 2)


def test_a_slow_leak_shows_over_a_long_time() -> None:
    """GIVEN a copy kept at every 600th step, THEN it is named from the thinned floors."""
    held: list[Held] = [(BASE + 256 * MIB * (n // 600), 300 + 20 * (n // 600)) for n in range(9_000)]

    assert named(held[:1_200]) == [None] * 1_200
    last = named(held, first=8_990)[-1]
    assert last is not None
    assert last.bytes_per_step == pytest.approx(256 * MIB / 600, rel=0.25)
    assert last.last_step - last.first_step > 3_000


def run_of(held: list[Held]) -> Run:
    """A session of frames at each second step's beginning, a tenth of a second apart."""
    run = Run()
    for place, (size, blocks) in enumerate(held):
        run.driver(size + GIB, size)
        run.frame(size, step=2 * place, boundary="forward_start", num_blocks=blocks)
    return run


def test_a_leak_speaks_in_the_verdict() -> None:
    """With its slope, its steps and the time that is left; what fits comes after it."""
    run = run_of(plus(STEADY, 128 * MIB, 1)[:70])

    view = build_view(run.session, "cuda:0", run.now_ns)

    full = "full in about 160 steps, 8.2 s"
    assert view.growth == f"allocated grows 64.0 MiB a step (steps 1 to 139): {full}"
    assert view.verdict.level == "warning"
    assert view.verdict.text.startswith(f"grows 64.0 MiB a step: {full} · ")


def test_kept_losses_are_told_and_no_warning() -> None:
    """GIVEN 512 bytes a step, and decades till the device is full, THEN they stand where growth stands, only there."""
    run = run_of(plus(STEADY, 1024, 2)[:80])

    view = build_view(run.session, "cuda:0", run.now_ns)

    assert view.growth.startswith("allocated grows 512 B a step (steps 1 to 159): full in about 40,000,000 steps")
    assert "grows" not in view.verdict.text


def test_growth_in_as_many_blocks_is_told_and_no_warning() -> None:
    """GIVEN a cache that is made anew, larger, or longer batches: nobody can tell which, and the verdict is silent."""
    run = run_of(QUIET["longer and longer batches"][:80])

    view = build_view(run.session, "cuda:0", run.now_ns)

    assert view.growth == (
        "allocated grows 2.0 MiB a step (steps 1 to 159) in as many blocks: "
        "longer batches, or a tensor that is made anew, larger"
    )
    assert "grows" not in view.verdict.text
    warm = run_of(WARM[:80])
    assert "grows" not in build_view(warm.session, "cuda:0", warm.now_ns).growth


def test_going_back_in_time_takes_back_what_was_said() -> None:
    """GIVEN a copy of a session before a leak, THEN it goes on without it."""
    run = run_of(STEADY[:80])
    before = run.session.snapshot()
    for place, (size, blocks) in enumerate(plus(STEADY, 128 * MIB, 1)[:80]):
        run.frame(size, step=160 + 2 * place, boundary="forward_start", num_blocks=blocks)

    assert "grows" in build_view(run.session, "cuda:0", run.now_ns).growth
    assert build_view(before, "cuda:0", run.now_ns).growth == ""


@pytest.mark.parametrize(
    ("leak", "text"),
    [
        (
            Leak(1.2 * MIB, 1.1 * MIB, 1.3 * MIB, 39, 259, 1.0, 9_012, 7_800.0),
            "grows 1.2 MiB a step (1.1 to 1.3, steps 40 to 260): full in about 9,000 steps, 2 h 10 m",
        ),
        (Leak(900, 800, 2048, 0, 99), "grows 900 B a step (800 B to 2.0 KiB, steps 1 to 100)"),
        (Leak(512, 512, 512, 0, 99, 1.0), "grows 512 B a step (steps 1 to 100)"),
    ],
)
def test_a_leak_in_words(leak: Leak, text: str) -> None:
    """What is not known is not said, nor an interval of nothing."""
    assert leak_text(leak) == text


def test_the_slope_and_its_interval() -> None:
    """GIVEN lines with noise and wild points, THEN the true slope is in nineteen intervals of twenty, or nearly."""
    chance = random.Random(8)
    inside = 0
    for _ in range(200):
        places = list(itertools.accumulate(chance.randrange(1, 6) for _ in range(30)))
        values = [round(1000 * place + chance.gauss(0, 8000)) for place in places]
        found = slope(places, values, 3.5)
        inside += found.low <= 1000 <= found.high
        assert found.surely <= found.low <= found.middle <= found.high
    assert 180 <= inside <= 200

    wild = [10**9 if n % 5 == 0 else 7 * n for n in range(30)]
    assert slope(range(30), wild, 3.5).low <= 7 <= slope(range(30), wild, 3.5).high


@pytest.mark.parametrize(
    ("values", "rise"),
    [
        (list(range(30)), 29),
        ([n // 5 for n in range(30)], 5),  # a staircase of six
        ([n // 12 for n in range(36)], 0),  # of three
        ([0] * 15 + list(range(15)), 0),  # began in the middle
        ([*range(15), *[15] * 15], 0),  # ended there
        ([round(100 * (1 - 0.9**n)) for n in range(30)], 0),
        ([5] * 30, 0),
        ([1, 2, 3, 4, 5], 0),  # too few
    ],
)
def test_an_even_rise(values: list[int], rise: int) -> None:
    """All along, at about one rate."""
    assert steady_rise(range(len(values)), values) == pytest.approx(rise, abs=1)


def test_a_recorded_step_that_leaves_memory_behind_is_confirmed_by_the_steps_after_it() -> None:
    """GIVEN what the allocator's rules say of one step and what a few more left, THEN the verdict does not wait."""
    run = run_of(plus(STEADY, 128 * MIB, 1)[:10])
    before = build_view(run.session, "cuda:0", run.now_ns).verdict
    found = SteadyStep(run.now_ns, "cuda:0", 2, GIB, GIB, True, "", growth_bytes=64 * MIB)
    run.session.apply_steady(found)
    view = build_view(run.session, "cuda:0", run.now_ns)

    assert before.text.startswith("fits so far, ")
    assert view.verdict.level == "warning"
    assert view.verdict.text.startswith("grows 64.0 MiB a step: full in about ")
    assert "fits" not in view.verdict.text

    run.session.apply_steady(replace(found, growth_bytes=512 * MIB))
    assert build_view(run.session, "cuda:0", run.now_ns).verdict == before
