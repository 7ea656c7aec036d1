"""Phases and steps from sequences of boundaries, one test a kind of loop."""

from __future__ import annotations

import pytest

from memtui.agent.phases import Phases


def play(sequence: str) -> tuple[Phases, list[int]]:
    """`f` forward start, `b`/`B` backward start/end, `o`/`O` optimizer start/end, digits choose the optimizer.

    Returns the phases, and the places in the sequence at which a step ended.
    """
    kinds = {
        "f": "forward_start",
        "b": "backward_start",
        "B": "backward_end",
        "o": "optimizer_start",
        "O": "optimizer_end",
    }
    phases, optimizer, ended = Phases(0), 0, []
    for place, letter in enumerate(sequence):
        if letter.isdigit():
            optimizer = int(letter)
        elif phases.boundary(kinds[letter], place, optimizer):
            ended.append(place)
    return phases, ended


@pytest.mark.parametrize(
    ("loop", "steps"),
    [
        ("fbBoO", 1),  # plain
        ("fbBfbBoO", 1),  # gradients of two micro-batches
        ("fbBfbBfbBfbBoO", 1),
        ("fbfBoO", 1),  # a root recomputed inside backward
        ("fbbBBoO", 1),  # backward within backward (reentrant checkpoint)
        ("offbBO", 1),  # a closure evaluates the model inside the optimizer's step
    ],
)
def test_steps_of_one_optimizer(loop: str, steps: int) -> None:
    phases, _ = play(loop * 10)
    assert phases.step == 10 * steps
    assert phases.phase == "between"
    assert phases.depth == 0


def test_a_cycle_of_two_optimizers_is_one_step() -> None:
    phases, _ = play("fbB1oOfbB2oO" * 20)
    assert 20 <= phases.step <= 22  # the cycle is learned in its first round


def test_five_critic_steps_a_generator_step_are_one_cycle() -> None:
    phases, _ = play(("fbB1oO" * 5 + "fbB2oO") * 20)
    assert 20 <= phases.step <= 26


def test_optimizers_inside_backward_step_with_it() -> None:
    phases, _ = play("fb1oO2oO3oOB" * 10)
    assert phases.step == 10


def test_inference_counts_forwards() -> None:
    phases, _ = play("f" * 10)
    assert phases.step == 9  # the tenth is under way


def test_accumulation_before_the_first_step_counts_none() -> None:
    assert play("fbB" * 32)[0].step == 0


def test_a_program_without_an_optimizer_steps_with_backward() -> None:
    phases, _ = play("fbB" * 200)
    assert 130 <= phases.step <= 140


def test_what_the_program_says_goes() -> None:
    phases, _ = play("fbBoO")
    phases.explicit_step(100)
    assert phases.step == 2
    assert phases.boundary("forward_start", 101) is False
    assert phases.boundary("optimizer_end", 102) is False
    assert phases.step == 2
    phases.explicit_step(150)
    assert (phases.step, phases.last_step_ns) == (3, 50)


def test_times() -> None:
    phases = Phases(0)
    phases.boundary("forward_start", 10)
    phases.boundary("backward_start", 30)
    assert (phases.phase, phases.since_ns, phases.ended, phases.begun_by) == (
        "backward",
        30,
        "forward",
        "backward_start",
    )
    phases.boundary("backward_end", 60)
    phases.boundary("optimizer_start", 70)
    assert phases.boundary("optimizer_end", 110) is True
    assert (phases.last_step_ns, phases.step_since_ns) == (100, 110)
