"""The cause where somebody watched the process, what is advised against it, and what a series of figures does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Optional

import pytest

from memtui.analysis.oom.answer import explain_evidence
from memtui.analysis.oom.evidence import Evidence, Larger, Live, Pin
from memtui.analysis.oom.interval import Interval
from memtui.analysis.oom.series import Figure, course_text, find_course
from tests.support.messages import GIB, MIB

CATEGORIES = {"parameters": 3 * GIB, "gradients": 3 * GIB, "optimizer_state": 6 * GIB, "activations": 10 * GIB}


def evidence(*, idle: int = 0, tried: int = GIB, live: Live = Live(), **more: Any) -> Evidence:  # noqa: B008 (frozen)
    """Of a device of 24 GiB that is full, with so much idle."""

    def exactly(size: int) -> Interval:
        return Interval.exactly(size)

    held = 23 * GIB
    found = Evidence(
        tried=exactly(tried),
        total=exactly(24 * GIB),
        free=exactly(100 * MIB),
        allocated=exactly(held - idle),
        idle=exactly(idle),
        reserved=exactly(held),
        own=exactly(held + 500 * MIB),
        others=exactly(0),
        live=live,
    )
    return replace(found, **more)


FULL = Live(phase="backward", step=40, categories=CATEGORIES, batch=16)


@pytest.mark.parametrize(
    ("live", "kind", "words"),
    [
        (FULL, "full", "most is activations, 10.0 GiB"),
        (replace(FULL, growth_bytes_per_step=3.0 * MIB), "leak", "3.0 MiB a step"),
        (replace(FULL, phase="optimizer", first_optimizer_step=True), "first optimizer step", "makes its state"),
        (replace(FULL, phase="backward", first_optimizer_step=True), "full", ""),
        (replace(FULL, phase="evaluation"), "evaluation peak", "step 41"),
        (replace(FULL, phase="forward", evaluates=True), "evaluation peak", "in eval mode, but gradients are on"),
        (replace(FULL, phase="checkpoint"), "checkpoint peak", "copies"),
        (replace(FULL, larger_batch=Larger(2048, 1536)), "longest batch", "2,048 tokens, the largest before had 1,536"),
        (replace(FULL, larger_batch=Larger(1024, 1536)), "full", ""),
    ],
)
def test_what_was_seen_says_by_what_it_is_full(live: Live, kind: str, words: str) -> None:
    answer = explain_evidence(evidence(live=live))
    assert (answer.cause.kind, answer.cause.certain) == (kind, True)
    assert words in answer.sentence


def test_no_growth_makes_a_leak_of_another_cause() -> None:
    """GIVEN a leak, and a request that no device serves, or memory that others hold, THEN that is the cause."""
    live = replace(FULL, growth_bytes_per_step=3.0 * MIB)
    assert explain_evidence(evidence(live=live, tried=30 * GIB)).cause.kind == "impossible"
    held = {"reserved": Interval.exactly(2 * GIB), "allocated": Interval.exactly(2 * GIB)}
    taken = evidence(live=live, own=Interval.exactly(3 * GIB), others=Interval.exactly(20 * GIB), **held)
    assert explain_evidence(taken).cause.kind == "other process"


def test_pins_are_named() -> None:
    """GIVEN the blocks that pin the holes, THEN they are named, and the setting that joins holes comes first."""
    live = replace(
        FULL, pinned_segments=41, pins=(Pin("layer.3\x1b[2J kv", 3 * MIB),), largest_free_block_bytes=600 * MIB
    )
    answer = explain_evidence(evidence(idle=3 * GIB, live=live))

    assert answer.cause.kind == "fragmentation"
    assert "41 segments are pinned by live blocks, as layer.3 kv" in answer.sentence
    assert "expandable_segments:True" in answer.remedies[0].action
    assert answer.remedies[0].saves_bytes == 3 * GIB
    assert any("layer.3 kv (3.0 MiB)" in remedy.action for remedy in answer.remedies)
    assert ("largest free block", 600 * MIB) in [(row.name, row.bytes.middle) for row in answer.rows]
    switched = explain_evidence(evidence(idle=3 * GIB, live=replace(live, expandable=True)))
    assert not any("expandable" in remedy.action for remedy in switched.remedies)


@pytest.mark.parametrize(("segment_mib", "setting"), [(600, 512), (512, 256), (40, 32), (32, None), (20, None)])
def test_blocks_stay_whole_only_in_segments_that_are_larger(segment_mib: int, setting: Optional[int]) -> None:
    """GIVEN pinned segments, THEN a largest size to split is named that is below theirs, or none."""
    live = replace(FULL, pinned_segments=41, pins=(Pin("a block", 3 * MIB, segment_mib * MIB),))
    actions = [remedy.action for remedy in explain_evidence(evidence(idle=3 * GIB, tried=2 * GIB, live=live)).remedies]
    named = [action.partition(":")[2].partition(":")[0] for action in actions if "max_split_size_mb" in action]
    assert named == ([] if setting is None else [str(setting)])


def test_what_has_no_known_owner_may_all_be_activations() -> None:
    """GIVEN a step that was not looked at, THEN these come first, and with no figure that they are not below."""
    categories = {"parameters": 3 * GIB, "activations": 512, "unattributed": 18 * GIB}
    live = replace(FULL, categories=categories, births_known=False)
    most = 18 * GIB + 512
    capped = explain_evidence(evidence(live=live, allowed=Interval.exactly(23 * GIB))).remedies
    assert [remedy.saves_bytes for remedy in capped[1:3]] == [most // 16, most]
    full = explain_evidence(evidence(live=live)).remedies
    assert full[0].saves_bytes == most // 16
    elsewhere = explain_evidence(evidence(live=replace(live, phase="optimizer"))).remedies
    assert most not in [remedy.saves_bytes for remedy in elsewhere]


def test_remedies_are_those_of_what_dominates() -> None:
    """GIVEN activations, optimizer state or weights as the most, THEN theirs come first, with what they save."""
    by_activations = explain_evidence(evidence(live=FULL)).remedies
    assert by_activations[0].action.startswith("batch 16 → 14")  # the most that saves what is short
    assert [remedy.saves_bytes for remedy in by_activations[:2]] == [10 * GIB * 2 // 16, 10 * GIB]
    state = {**CATEGORIES, "optimizer_state": 12 * GIB, "activations": GIB}
    by_state = explain_evidence(evidence(live=replace(FULL, categories=state, devices=4))).remedies
    assert [remedy.saves_bytes for remedy in by_state[:3]] == [9 * GIB, 12 * GIB, 9 * GIB]
    weights = {"parameters": 12 * GIB, "gradients": 6 * GIB}
    by_weights = explain_evidence(evidence(live=replace(FULL, categories=weights, devices=4))).remedies
    assert by_weights[0].saves_bytes == 18 * GIB * 3 // 4


@pytest.mark.parametrize(
    ("changed", "kind", "first", "never"),
    [
        ({"tried": Interval.exactly(30 * GIB)}, "impossible", "1.3 times smaller, at least", "expandable"),
        ({"allowed": Interval.exactly(23 * GIB)}, "cap", "raise or drop the cap", "checkpointing ("),
        ({"total": Interval.exactly(20 * GIB)}, "spill", "lower what is held by 3.0 GiB", "expandable"),
        ({"free": Interval.exactly(GIB)}, "unexplained", "with the device to itself", "checkpointing"),
        ({"idle": Interval.exactly(0)}, "full", "micro-batch", "expandable"),
    ],
)
def test_each_cause_has_its_own_remedies(changed: dict[str, Any], kind: str, first: str, never: str) -> None:
    answer = explain_evidence(replace(evidence(), **changed))
    assert answer.cause.kind == kind
    assert first in answer.remedies[0].action
    assert not any(never in remedy.action for remedy in answer.remedies)
    assert all(remedy.price for remedy in answer.remedies)


def test_a_request_that_freed_nothing_of_a_full_device() -> None:
    """A recorded error with exact figures (Constructor-Sun/code_location): 99.8 % of what is reserved was live."""
    reserved, allocated = Interval.exactly(84_202_749_952), Interval.exactly(84_063_353_360)
    answer = explain_evidence(
        Evidence(
            tried=Interval.exactly(5_308_694_528),
            total=Interval.exactly(85_095_874_560),
            free=Interval.exactly(95_682_560),
            allocated=allocated,
            reserved=reserved,
            idle=reserved - allocated,
        )
    )
    assert answer.cause.kind == "full"


def series(values: Sequence[float], every: int = 1, event: str = "", at: int = 0) -> list[Figure]:
    """Figures every so many steps; each `at`-th of them came with an event."""
    return [
        Figure(place * every, int(value), event if at and place and place % at == 0 else "")
        for place, value in enumerate(values)
    ]


def climbing() -> list[float]:
    """From 8,400 MiB up to 11.29 GiB, by 2 MiB at most steps."""
    chance, values = random.Random(1), [8_400.0 * MIB]
    while values[-1] < 11.29 * GIB:
        values.append(values[-1] + (2 * MIB if chance.random() < 0.7 else 0))
    return values


@pytest.mark.parametrize(
    ("figures", "course"),
    [
        # Published, by their first and last figures and what was said of the way between them.
        (series(climbing()), "leak"),  # autonomousvision/graf#6
        (series([21 * GIB + 17 * GIB * (n % 200) / 200 for n in range(450)]), "saw-tooth"),  # TRI-ML/packnet-sfm#47
        (series([10 * GIB, 20 * GIB], 300), "growth"),  # graspnet/graspnet-baseline#97: two figures, no more
        (
            series([20 * GIB + 3.66 * GIB * (n // 5) for n in range(26)], 1, "checkpoint", 5),
            "staircase",
        ),  # pytorch#103884
        (series([1.06 * GIB] * 3 + [4.34 * GIB] * 50), "plateau"),  # NVIDIA/nccl#1685: at the first collective
        (
            series([4_689 * MIB] * 2 + [12_756 * MIB] * 30),
            "plateau",
        ),  # kazuto1011/deeplab-pytorch#74: a workspace stays
        (series([40 * GIB] + [3 * GIB] * 30), "transient"),  # NVlabs/stylegan2-ada-pytorch#80
        # Warm-ups that were taken for leaks: 2,934 to 4,537 MiB and then flat, and a workspace of cuBLAS.
        (series([2_934 * MIB, 4_413 * MIB, 4_433 * MIB, *[4_537 * MIB] * 60]), "plateau"),
        (series([40 * MIB] * 100 + [40 * MIB + 8_519_680] * 200), "plateau"),
        (series([4 * GIB] * 100 + [4 * GIB + 8_519_680] * 200), "steady"),
        # Made up.
        (series([4 * GIB, 8 * GIB, 12 * GIB] + [12 * GIB + 4 * MIB * n for n in range(200)]), "leak"),
        (series([4 * GIB, 8 * GIB, 12 * GIB] + [12 * GIB + 4 * MIB * n for n in range(60)]), "growth"),
        (series([4 * GIB + MIB // 20 * n for n in range(200)]), "leak"),
        (series([2_934 * MIB, 4_413 * MIB, 4_433 * MIB, 4_537 * MIB, 4_537 * MIB]), "uneven"),  # not still for long
        (series([4 * GIB + GIB * (1 - 0.95**n) for n in range(300)]), "plateau"),
        (series([4 * GIB, 8 * GIB] + [12 * GIB] * 200), "plateau"),  # gradients, then optimizer state
        (series([4 * GIB + random.Random(n).randrange(600) * MIB for n in range(300)]), "uneven"),
        (series([4 * GIB + n * 30 * MIB for n in range(20)]), "growth"),  # too few steps
        (series([4 * GIB] * 50), "steady"),
        (series([4 * GIB]), "unknown"),
    ],
)
def test_the_course_of_a_series(figures: list[Figure], course: str) -> None:
    """A leak goes on; a warm-up and a workspace that stays do not, nor does what is cleared."""
    found = find_course(figures)
    assert found.course == course
    assert bool(course_text(found)) == (course != "unknown")


def test_a_course_has_its_rate_and_its_period() -> None:
    tooth = find_course(series([21 * GIB + 17 * GIB * (n % 200) / 200 for n in range(450)]))
    assert (tooth.period, round((tooth.bytes_per_step or 0) / MIB)) == (200, 87)
    stairs = find_course(series([20 * GIB + 3.66 * GIB * (n // 5) for n in range(26)], 1, "checkpoint", 5))
    assert (stairs.period, stairs.event) == (5, "checkpoint")
    leak = find_course(series(climbing()))
    assert leak.bytes_per_step == pytest.approx(1.4 * MIB, rel=0.05)
    after = find_course(series([4 * GIB, 8 * GIB, 12 * GIB] + [12 * GIB + 4 * MIB * n for n in range(200)]))
    assert (after.bytes_per_step, after.first_step > 0) == (4 * MIB, True)


def test_a_shared_device_and_metal_have_remedies_of_their_own() -> None:
    """GIVEN others that hold what is short, or a Mac whose process holds more beside PyTorch, THEN that comes first."""
    held = {"reserved": Interval.exactly(14 * GIB), "allocated": Interval.exactly(14 * GIB)}
    shared = explain_evidence(evidence(own=Interval.exactly(15 * GIB), others=Interval.exactly(8 * GIB), **held))
    assert (shared.cause.kind, shared.remedies[0].saves_bytes) == ("full", 8 * GIB)
    assert shared.remedies[0].action.startswith("end the other processes")
    metal = Evidence(
        tried=Interval.exactly(GIB),
        allocated=Interval.exactly(7 * GIB),
        beside=Interval.exactly(24 * GIB),
        allowed=Interval.exactly(32 * GIB - 1),
        allocator="metal",
        backend="MPS",
    )
    answer = explain_evidence(metal)
    assert (answer.cause.kind, answer.remedies[0].saves_bytes) == ("full", 24 * GIB)
    assert not any("FSDP" in remedy.action or "8-bit" in remedy.action for remedy in answer.remedies)


def test_a_leak_goes_before_the_pieces_that_it_left() -> None:
    """GIVEN enough free in pieces, THEN the leak is the cause where it grew to more than that, or than the request."""
    live = replace(FULL, growth_bytes_per_step=3.0 * MIB, grown_bytes=2 * GIB)
    for idle, grown, kind in ((GIB, 2 * GIB, "leak"), (3 * GIB, 2 * GIB, "leak"), (3 * GIB, MIB, "fragmentation")):
        answer = explain_evidence(evidence(idle=idle, live=replace(live, grown_bytes=grown)))
        assert (answer.cause.kind, answer.cause.certain) == (kind, True)


def test_little_in_pieces_is_a_full_device() -> None:
    """GIVEN 27.75 MiB free or idle of 4 GiB, THEN it is full, of what, and the pieces are a note; by a message not."""
    little = {
        "tried": Interval.exactly(16 * MIB),
        "total": Interval.exactly(4 * GIB),
        "free": Interval.exactly(10 * MIB),
        "allocated": Interval.exactly(3_600 * MIB),
        "idle": Interval.exactly(int(17.75 * MIB)),
        "reserved": Interval.exactly(3_600 * MIB + int(17.75 * MIB)),
        "own": None,
        "others": None,
    }
    live = replace(FULL, categories={"activations": 3_000 * MIB, "parameters": 600 * MIB})
    answer = explain_evidence(replace(evidence(live=live), **little))
    assert answer.sentence == (
        "full: 16.00 MiB were asked for, and no more than 27.75 MiB of 4.00 GiB were free or idle, in pieces; "
        "most is activations, 2.9 GiB"
    )
    assert answer.notes[0].startswith("No piece of it was of 16.00 MiB")
    assert "expandable" not in answer.remedies[0].action
    many = {
        **little,
        "tried": Interval.exactly(6 * MIB),
        "free": Interval.exactly(5 * MIB),
        "idle": Interval.exactly(23 * MIB),
    }
    assert explain_evidence(replace(evidence(live=live), **many)).cause.kind == "fragmentation"
    assert explain_evidence(replace(evidence(), **little)).cause.kind == "fragmentation"


def test_an_evaluation_has_the_remedies_of_what_it_holds() -> None:
    """GIVEN one that was watched, so without gradients, THEN what it keeps is what the host would take."""
    live = replace(FULL, phase="evaluation", categories={"parameters": 3 * GIB, "temporaries": 18 * GIB})
    found = explain_evidence(evidence(tried=2 * GIB, live=live, watched=True)).remedies
    assert [(each.action.partition(" as they")[0], each.saves_bytes) for each in found[:2]] == [
        ("move outputs to the host", 18 * GIB),
        ("half the evaluation batch", GIB),
    ]
    assert not any("no_grad" in each.action or "zero_grad" in each.action for each in found)
    held = {"parameters": 3 * GIB, "gradients": 3 * GIB, "activations": 4 * GIB}
    found = explain_evidence(evidence(live=replace(live, categories=held), watched=True)).remedies
    assert [each.saves_bytes for each in found if "zero_grad" in each.action] == [3 * GIB]
    assert [each.saves_bytes for each in found if "move outputs" in each.action] == [None]
    assert (found[0].action.partition(" before")[0], found[0].saves_bytes) == (
        "drop the training's loss and outputs",
        4 * GIB,
    )
