"""What a step would take if one thing were changed: which figures move, by how much, and what cannot be said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.policy import DEFAULT
from memtui.analysis.recorded import StepTimeline
from memtui.analysis.whatif.checkpointing import checkpointed, container
from memtui.analysis.whatif.facts import Facts, batch_of, gather
from memtui.analysis.whatif.levers import levers
from memtui.analysis.whatif.moments import Moment, grown, highest, lives, moment, most_times, of_lives
from memtui.analysis.whatif.panel import Answer, panel
from memtui.session.readings import SteadyStep
from memtui.session.session import Session
from memtui.wire.frames import CATEGORIES, DeviceFrame, Frame, Mark, Optimizer
from tests.support.recorded import by_hand, gpt
from tests.support.sessions import GIB, MIB, Run, classified

PARAMETERS = 1000 * MIB
_ADAM = Optimizer("AdamW", {}, {"cuda:0": PARAMETERS}, PARAMETERS // 4, {"cuda:0": 2 * PARAMETERS}, 5)
_FORWARD = {
    "parameters": PARAMETERS,
    "optimizer_state": 2 * PARAMETERS,
    "activations": 800 * MIB,
    "temporaries": 80 * MIB,
}
_OPTIMIZER = {
    "parameters": PARAMETERS,
    "optimizer_state": 2 * PARAMETERS,
    "gradients": PARAMETERS,
    "temporaries": PARAMETERS,
}


def facts(**fields: Any) -> Facts:
    """An Adam training whose peak is in the optimizer's step, and in backward once the batch is larger."""
    given: dict[str, Any] = {
        "moments": (moment("backward", _FORWARD), moment("optimizer", _OPTIMIZER)),
        "basis": "a test",
        "recorded": True,
        "kind": "predicted",
        "parameter_bytes": PARAMETERS,
        "trained_bytes": PARAMETERS,
        "trained": PARAMETERS // 4,
        "dtypes": {"float32": PARAMETERS},
        "optimizers": (_ADAM,),
        "outside_bytes": 500 * MIB,
        "reach_bytes": 8 * GIB,
    }
    return Facts(**{**given, **fields})


def answer(key: str, of: Facts, times: int = 2, devices: int = 8) -> Answer:
    keys = [lever.key for lever in levers(of, times, devices)]
    return panel(of, "cuda:0", times, devices).answers[keys.index(key)]


def test_the_peak_moves_to_where_it_is_highest_after_the_change() -> None:
    assert facts().present.phase == "optimizer"
    doubled = answer("batch", facts())
    assert (doubled.peak_bytes, doubled.change_bytes, doubled.phase) == (5000 * MIB, 0, "optimizer")
    fourfold = answer("batch", facts(), times=4)
    assert (fourfold.peak_bytes, fourfold.phase) == (3000 * MIB + 4 * 880 * MIB, "backward")


def test_the_optimizers_temporaries_do_not_grow_with_the_batch() -> None:
    assert grown(moment("optimizer", _OPTIMIZER), 7).total == moment("optimizer", _OPTIMIZER).total


def test_accumulation_keeps_every_gradient_while_the_next_micro_batch_runs() -> None:
    half = answer("accumulate", facts(moments=(moment("backward", _FORWARD),), largest_gradient_bytes=100 * MIB))
    assert half.peak_bytes == (3000 + 440 + 1000 + 100) * MIB
    assert half.sign == ""
    unknown = answer("accumulate", facts(moments=(moment("backward", _FORWARD),)))
    assert (unknown.peak_bytes, unknown.sign) == ((3000 + 440 + 1000) * MIB, "≥")
    assert answer("accumulate", facts(batch=1)).why_not == "the batch is one sample already"


def test_bf16_halves_what_is_float32_and_nothing_else() -> None:
    whole = answer("bf16", facts())
    assert whole.peak_bytes == 2500 * MIB
    mixed = answer("bf16", facts(dtypes={"float32": 1, "bfloat16": 1}))
    assert mixed.peak_bytes == 3750 * MIB
    kept = answer("bf16", facts(optimizers=(replace(_ADAM, name="Adafactor"),)))
    assert kept.peak_bytes == (2000 + 1500) * MIB


def test_autocast_is_a_lower_bound_that_never_says_it_fits() -> None:
    found = answer("autocast", facts(moments=(moment("backward", _FORWARD),)))
    assert (found.peak_bytes, found.sign, found.fits) == (3440 * MIB, "≥", "unknown")
    assert answer("autocast", facts(reach_bytes=GIB)).fits == "no"


def test_sharding_divides_its_stages_share() -> None:
    steps = facts(moments=(moment("optimizer", _OPTIMIZER),))
    assert [answer(f"zero{stage}", steps).peak_bytes for stage in (1, 2, 3)] == [
        (1000 + 1000 + 250 + 125) * MIB,
        (1000 + 125 + 250 + 125) * MIB,
        (125 + 125 + 250 + 125) * MIB,
    ]
    assert answer("zero1", steps, devices=2).peak_bytes == (1000 + 1000 + 1000 + 500) * MIB
    assert answer("zero3", steps).sign == "≥"
    backward = facts(moments=(moment("backward", _FORWARD),), gathered_bytes=300 * MIB, block_bytes=100 * MIB)
    assert answer("zero3", backward).peak_bytes == (125 + 250 + 880 + 300 + 100) * MIB


def test_fewer_trained_parameters_take_less_of_what_follows_them() -> None:
    half = answer("frozen", facts())
    assert (half.peak_bytes, half.sign) == ((1000 + 1000 + 500 + 500) * MIB, "≤")
    adapters = answer("lora", facts(moments=(moment("backward", _FORWARD),)))
    assert adapters.peak_bytes == (1010 + 20 + 880) * MIB


def test_levers_of_the_optimizer() -> None:
    elements = PARAMETERS // 4
    assert answer("8bit", facts(moments=(moment("optimizer", _OPTIMIZER),))).peak_bytes == 2 * PARAMETERS + 2 * (
        elements + 4 * (elements // 256)
    )
    assert answer("sgd", facts(moments=(moment("optimizer", _OPTIMIZER),))).peak_bytes == 2000 * MIB
    assert answer("fused", facts()).peak_bytes == 4000 * MIB


@pytest.mark.parametrize(
    ("key", "changed", "words"),
    [
        ("bf16", {"dtypes": {"bfloat16": 1}}, "bfloat16 already"),
        ("autocast", {"dtypes": {"float16": 1}}, "float16 already"),
        ("8bit", {"optimizers": (replace(_ADAM, name="AdamW8bit"),)}, "in use already"),
        ("8bit", {"optimizers": (replace(_ADAM, name="Muon"),)}, "no 8-bit form of Muon"),
        ("sgd", {"moments": (moment("backward", {"parameters": 1}),)}, "no optimizer state"),
        ("fused", {"optimizers": (replace(_ADAM, options={"fused": True}),)}, "in use already"),
        ("fused", {"optimizers": (replace(_ADAM, options={"foreach": False}),)}, "makes no copy"),
        ("lora", {"trained_bytes": PARAMETERS // 100}, "1 % of the parameters are trained"),
        ("zero2", {"roots": ("FSDPGPT",)}, "sharded by FSDP already"),
        ("zero3", {"roots": ("DeepSpeedEngine",)}, "not seen from here"),
        ("checkpointing", {}, "d records a step"),
    ],
)
def test_what_is_in_use_or_cannot_be_told_is_said_and_has_no_figure(
    key: str, changed: dict[str, Any], words: str
) -> None:
    found = answer(key, facts(**changed))
    assert words in found.why_not
    assert (found.peak_bytes, found.change_bytes, found.fits) == (None, None, "unknown")


def test_whether_it_fits_is_by_the_whole_device() -> None:
    assert [panel(facts(reach_bytes=reach * MIB), "").answers[0].fits for reach in (5499, 5500, 6000)] == [
        "no",
        "tight",
        "fits",
    ]
    # At most so much says that it fits, never that it does not.
    assert answer("frozen", facts(reach_bytes=3000 * MIB)).fits == "unknown"
    assert answer("frozen", facts(reach_bytes=4000 * MIB)).fits == "fits"


def test_bounds_of_a_present_that_is_itself_a_bound_say_no_more_than_is_known() -> None:
    bound = facts(kind="lower_bound", reach_bytes=8 * GIB)
    now = panel(bound, "").present
    assert now is not None
    assert (now.sign, now.fits) == ("≥", "unknown")
    assert (answer("batch", bound).sign, answer("batch", bound).fits) == ("≥", "unknown")
    assert (answer("frozen", bound).sign, answer("frozen", bound).fits) == ("≈", "unknown")
    assert panel(bound, "").largest_words.startswith("largest batch that fits: at most ×")


def test_without_the_devices_figures_nothing_is_said_of_fitting() -> None:
    unknown = panel(facts(outside_bytes=None), "")
    assert {each.fits for each in unknown.answers} == {"unknown"}
    assert unknown.largest_words == "largest batch that fits: not known, as what else is on the device is not"


def test_the_largest_batch_is_told_in_samples_where_they_are_known() -> None:
    room = (3000 + 2 * 880 + 400 + 500) * MIB
    assert panel(facts(reach_bytes=room, batch=8), "").largest_words == (
        "largest batch that fits: ×2.45, 19 samples (8 now, by the command line)"
    )
    holes = panel(facts(reach_bytes=room, holes_bytes=320 * MIB), "")
    assert holes.largest_words == "largest batch that fits: ×2.45; ×1.80 if holes of 320.0 MiB grow with it"
    assert panel(facts(reach_bytes=GIB), "").largest_words.startswith("no batch fits")


@pytest.mark.parametrize(
    ("line", "batch"),
    [
        ("train.py --batch-size 16", 16),
        ("train.py --batch=4", 4),
        ("train.py --per_device_train_batch_size 2 --epochs 3", 2),
        ("train.py -b 32", 32),
        ("train.py --batches 7", None),
        ("train.py --eval-batch 64", None),
        ("train.py --per_device_eval_batch_size 64 --per_device_train_batch_size 2", 2),
        ("train.py --batch-size", None),
        ("train.py --batch-size auto", None),
    ],
)
def test_the_batch_is_read_from_the_command_line(line: str, batch: int | None) -> None:
    assert batch_of(line.split()) == batch


_SIZES = st.lists(st.integers(0, 50), min_size=len(CATEGORIES), max_size=len(CATEGORIES)).map(tuple)
_MOMENTS = st.lists(
    st.builds(Moment, st.sampled_from(("forward", "backward", "optimizer")), _SIZES), min_size=1, max_size=12
)


@given(_MOMENTS, st.floats(0.1, 20))
def test_no_peak_is_lost_by_leaving_out_moments(found: list[Moment], times: float) -> None:
    kept = highest(found)
    assert max(grown(each, times).total for each in kept) == max(grown(each, times).total for each in found)


@given(_MOMENTS, st.integers(1, 2000))
def test_the_largest_batch_fits_and_no_larger_one_does(found: list[Moment], room: int) -> None:
    times = most_times(found, room)
    if not times:
        return
    rounding = len(CATEGORIES)
    assert max(grown(each, times).total for each in found) <= room + rounding
    assert max(grown(each, times + 1 + rounding).total for each in found) > room


def test_a_recorded_steps_moments_reach_its_peak() -> None:
    timeline = StepTimeline(gpt())
    found = of_lives(lives(timeline), timeline)
    assert max(each.total for each in found) == timeline.totals[timeline.peak]


# Checkpointing


def _two_blocks(head: int = 50, **fields: Any) -> StepTimeline:
    """Two blocks that keep 100 + 10 each, the 10 made last; then a head's, and backward with 40 more for a moment."""
    activation, temporary = CATEGORIES.index("activations"), CATEGORIES.index("temporaries")
    rows = (
        (0, 11, 100, activation, -1, -1, 0),
        (1, 10, 10, activation, -1, -1, 0),
        (2, 8, 100, activation, -1, -1, 1),
        (3, 6, 10, activation, -1, -1, 1),
        (4, 5, head, activation, -1, -1, 2),
        (7, 9, 40, temporary, -1, -1, 1),
    )
    given: dict[str, Any] = {"marks": (Mark(0, "forward"), Mark(5, "backward")), **fields}
    return StepTimeline(by_hand(rows, 12, modules=("layers.0.mlp", "layers.1", "head"), **given))


@pytest.mark.parametrize(
    ("head", "before", "after"),
    [
        (50, 270, 10 + 100 + 40),  # the second block's backward, on the first one's output
        (500, 720, 10 + 10 + 500),  # the loss, on both outputs
    ],
)
def test_checkpointing_keeps_outputs_and_has_one_block_again_at_a_time(head: int, before: int, after: int) -> None:
    timeline = _two_blocks(head)
    assert timeline.totals[timeline.peak] == before
    found = checkpointed(timeline)
    assert found.blocks == 2
    assert max(each.total for each in found.moments) == after


def test_checkpointing_that_is_in_use_or_has_no_blocks_is_said() -> None:
    assert checkpointed(_two_blocks(sites=("/x/torch/utils/checkpoint.py:1 f",))).reason == "in use already"
    assert "several" in checkpointed(_two_blocks(marks=(Mark(1, "backward"), Mark(5, "backward")))).reason
    assert checkpointed(StepTimeline(by_hand(((0, 3, 9, 4),), 4, marks=(Mark(2, "backward"),)))).reason.startswith(
        "no repeated blocks"
    )


def test_a_block_is_the_outermost_numbered_module() -> None:
    assert [container(name) for name in ("layers.3.mlp.0", "h.11", "head", "")] == ["layers.3", "h.11", None, None]


# From a session


def _watched(*, steps: int = 5, **look: Any) -> Run:
    run = Run()
    run.adam(PARAMETERS, state=2 * PARAMETERS, steps=steps)
    run.frame(
        3880 * MIB,
        phase="backward",
        step=3,
        classification=classified(3880 * MIB, phase="backward", step=3, **_FORWARD),
    )
    run.driver(5 * GIB, 5 * GIB)
    run.frame(3000 * MIB)
    run.step = 3
    run.end_step(3000 * MIB, 5100 * MIB, phase="optimizer", allocated_peak_bytes=5100 * MIB)
    return run


def _gathered(session: Session) -> Facts:
    found, reason = gather(session, "cuda:0", 10**10, DEFAULT)
    assert found is not None, reason
    return found


def test_the_present_is_as_high_as_the_forecast() -> None:
    found = _gathered(_watched().session)
    assert found.present.total == 5100 * MIB
    assert found.present.phase == "optimizer"
    assert found.outside_bytes is not None
    assert found.reach_bytes == 24 * GIB


def test_a_limit_of_the_process_is_less_than_the_device() -> None:
    """GIVEN a cap on the allocator, THEN a change fits where its tensors stay below that, whatever the device has."""
    run = _watched()
    run.frame(3000 * MIB, allowed_bytes=6 * GIB)
    found = _gathered(run.session)
    assert found.outside_bytes is not None
    assert found.reach_bytes == 6 * GIB + found.outside_bytes


def test_a_recorded_step_is_taken_larger_where_another_needed_more() -> None:
    run = _watched()
    step = gpt(unit=4 * MIB)
    run.session.apply(step, 0)
    found = _gathered(run.session)
    assert found.recorded
    assert abs(found.present.total - 5100 * MIB) < MIB
    assert "its batch taken ×" in found.basis
    assert found.checkpointed.blocks == 12


def test_an_evaluation_is_no_larger_batch() -> None:
    """GIVEN the highest peak in an evaluation, THEN it stands beside the step's instants, and no lever moves it."""
    run = _watched()
    run.session.apply(gpt(unit=4 * MIB), 0)
    recorded = max(each.total for each in _gathered(run.session).moments)
    run.end_step(3000 * MIB, 6000 * MIB, phase="evaluation", allocated_peak_bytes=6000 * MIB)
    found = _gathered(run.session)
    assert (found.present.phase, found.present.total) == ("evaluation", 6000 * MIB)
    assert "batch taken" not in found.basis
    assert max(each.total for each in found.moments if each.phase != "evaluation") < recorded


def test_what_steps_leave_behind_is_no_larger_batch() -> None:
    """GIVEN a step that leaves memory behind when it is done again, THEN what has piled up since is on top of all."""
    run = _watched()
    run.session.apply(gpt(unit=4 * MIB), 0)
    run.session.apply_steady(SteadyStep(1, "cuda:0", 3, GIB, GIB, True, "", growth_bytes=16 * MIB))
    found = _gathered(run.session)
    assert abs(found.present.total - 5100 * MIB) < MIB
    assert "left behind" in found.basis
    assert "batch taken" not in found.basis


def test_state_that_is_still_to_appear_is_counted() -> None:
    run = Run()
    run.adam(PARAMETERS)
    run.frame(PARAMETERS, boundary="forward_start", phase="forward")
    look = classified(1880 * MIB, phase="backward", parameters=PARAMETERS, activations=880 * MIB)
    run.frame(1880 * MIB, phase="backward", classification=look)
    found = _gathered(run.session)
    assert min(each.size("optimizer_state") for each in found.moments) == 2 * PARAMETERS


def test_without_looks_or_a_model_it_says_why() -> None:
    run = Run()
    assert gather(run.session, "cuda:0", 0, DEFAULT)[1] == "no figures of PyTorch's yet"
    run.frame(PARAMETERS)
    assert gather(run.session, "cuda:0", 0, DEFAULT)[1] == "the model's parameters on this device are not known yet"
    run.adam(PARAMETERS)
    assert gather(run.session, "cuda:0", 0, DEFAULT)[1].endswith("d records one")
    told = Frame(1, 1, 0, 0, "between", 1, (DeviceFrame("host", allocated_bytes=PARAMETERS),))
    host = Session(1)
    host.apply(told, 0)
    assert gather(host, "host", 0, DEFAULT)[1].startswith("for a GPU only")


def test_whether_activations_follow_the_inputs_is_told_where_it_was_seen() -> None:
    run = _watched()
    assert "not seen here" in _gathered(run.session).growth
    for step, size in ((4, 100), (5, 150), (6, 200)):
        look = classified(5 * GIB, phase="backward", step=step, inputs=size, activations=10 * size)
        run.frame(5 * GIB, phase="backward", step=step, classification=look)
    assert _gathered(run.session).growth == "seen in steps 5 and 7: inputs ×2.00, activations ×2.00"


def test_nothing_is_answered_where_much_has_no_owner() -> None:
    """GIVEN gradients of a first step that nobody has looked at, THEN there is a reason in the place of figures."""
    run = Run()
    run.adam(PARAMETERS)
    run.frame(PARAMETERS, boundary="forward_start", phase="forward")
    run.driver(5 * GIB, 5 * GIB)
    half = classified(2 * PARAMETERS, phase="between", parameters=PARAMETERS)
    run.frame(2 * PARAMETERS, phase="between", classification=half)
    found, reason = gather(run.session, "cuda:0", 10**10, DEFAULT)
    assert found is None
    assert "no known owner" in reason
