"""Phases and steps from sequences of boundaries, one test a kind of loop."""

from __future__ import annotations

import pytest

from memtui.agent.phases import Phases


def play(sequence: str) -> tuple[Phases, list[int]]:
    """`f` forward start, `e` the same without gradients, `b`/`B` backward start/end, `o`/`O` optimizer start/end.

    Digits choose the optimizer.

    Returns the phases, and the places in the sequence at which a step ended.
    """
    kinds = {
        "f": "forward_start",
        "e": "evaluation_start",
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


def test_an_optimizer_that_evaluates_the_model_goes_on_after_it() -> None:
    """A closure's backward ends within the optimizer's step; the next loop's does not."""
    inside = ["optimizer", "forward", "backward", "optimizer"]
    assert phases_of("ofbBfbBO") == [*inside, *inside[1:], "between"]
    assert phases_of("ofbBOfbB")[-1] == "between"


def test_optimizers_inside_backward_step_with_it() -> None:
    phases, _ = play("fb1oO2oO3oOB" * 10)
    assert phases.step == 10


@pytest.mark.parametrize("forward", "fe")
def test_inference_counts_forwards(forward: str) -> None:
    phases, _ = play(forward * 40)
    assert phases.step == 39  # the fortieth is under way
    assert (phases.phase, phases.begun_by) == ("forward", "forward_start")
    assert phases.last_step_ns == 1


def test_several_forwards_before_the_first_backward_are_one_step() -> None:
    """A GAN's: the count never goes back."""
    counts = [play("fff" + "bBoO"[:end])[0].step for end in range(5)]
    assert counts == [0, 0, 0, 0, 1]
    assert play("fffbBoO" * 3)[0].step == 3


def test_forwards_with_gradients_are_steps_once_there_are_many() -> None:
    assert [play("f" * count)[0].step for count in (2, 16, 17, 18)] == [0, 0, 16, 17]
    assert play("f" * 17)[0].last_step_ns == 1


def phases_of(sequence: str) -> list[str]:
    """The phase after each letter, from the first backward pass on."""
    return [play(sequence[:end])[0].phase for end in range(1, len(sequence) + 1)]


@pytest.mark.parametrize(
    "loop",
    [
        "fbBoOfbBoOeeee",  # between epochs
        "fbBoOfbBeeoO",  # before the optimizer's step
        "fbBefbBoOfbBfbBoO",  # between two micro-batches
        "efbBoOefbBoO",  # a teacher before the student
        "febBoOfebBoO",  # and after it
        "fbBoeOfbBoO",  # a closure that only asks for the loss
        "fbeBoOfbBoO",  # a hook in backward
        "1efbBoO1efbBoO",
        "efbB1oOfbB2oO" * 2,  # what the critic judges is made without gradients: cycles
    ],
)
def test_evaluation_changes_no_count(loop: str) -> None:
    """Steps end where they would without it, also once the loop has gone on for long."""
    whole = "fbBoO" + loop * 10
    without = whole.replace("e", "")
    assert play(whole)[0].step == play(without)[0].step
    ended = [whole[: place + 1].replace("e", "") for place in play(whole)[1]]
    assert ended == [without[: place + 1] for place in play(without)[1]]


def test_evaluation_lasts_until_the_next_boundary() -> None:
    """Several roots and batches of one evaluation are one phase; the next forward with gradients ends it."""
    assert phases_of("fbBoOeeefbB")[4:] == ["between", *["evaluation"] * 3, "forward", "backward", "between"]
    phases, _ = play("fbBoOeee")
    assert (phases.since_ns, phases.begun_by, phases.ended) == (5, "evaluation_start", "between")
    assert phases_of("fbBfeoO")[3:] == ["forward", "evaluation", "optimizer", "between"]
    assert phases_of("fbBoOfefb")[5:] == ["forward", "evaluation", "forward", "backward"]


def test_evaluation_before_the_first_step_of_a_training() -> None:
    """Whether the program trains is not known yet: its steps are counted from the first backward pass."""
    phases, _ = play("eee" + "fbBoO" * 3)
    assert phases.step == 3
    assert play("fbBoOeee")[0].step_since_ns == 4


def test_forwards_run_again_inside_backward_are_forwards() -> None:
    """Roots under reentrant activation checkpointing: without gradients first, with them in backward."""
    loop = "eebfbBfbBBoO"
    phases = phases_of(loop * 3)
    assert "evaluation" not in phases
    assert play(loop * 10)[0].step == 10
    # A loop that has evaluated before is told as well: from its first such backward pass on.
    assert phases_of("fbBoOebfbBBoOe")[-1] == "forward"
    # What runs again had gradients the first time: the evaluation beside it stays one.
    assert phases_of("fbBoO" + "febfBoO" * 3 + "e")[-1] == "evaluation"


def test_gradient_scaling_skips_a_step() -> None:
    """Without the optimizer's step, its forward and backward belong to the next one."""
    assert play(("fbBoO" * 2 + "fbB") * 10)[0].step == 20


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
