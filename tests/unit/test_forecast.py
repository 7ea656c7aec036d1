"""The first forecast, and what the verdict makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtui.analysis.build import build_view
from memtui.analysis.forecast import Forecast, build_forecast, forecast_lines
from memtui.analysis.ladder import Ladder, build_ladder
from memtui.analysis.optimizers import missing_state_bytes, state_factor, temporary_bytes
from memtui.analysis.policy import DEFAULT
from memtui.session.readings import HostReading, OptimizerTrial
from memtui.session.session import Session
from memtui.wire.frames import Device, DeviceFrame, Event, Frame, Optimizer
from tests.support.sessions import GIB, MIB, SECOND, Run, blocks, classified, hello


def forecast_of(run: Run) -> Forecast:
    return build_forecast(run.session, "cuda:0", build_ladder(run.session, "cuda:0", run.now_ns, DEFAULT))


def published_mlp(run: Run) -> None:
    """The five points of a published run up to its first optimizer step: 96.0, 184.2, 216.3 MB."""
    run.frame(96 * MIB, phase="startup")
    run.frame(96 * MIB, phase="forward", boundary="forward_start", step_peak_bytes=96 * MIB)
    run.frame(184 * MIB, phase="forward", step_peak_bytes=208 * MIB)
    run.frame(216 * MIB, phase="backward", boundary="backward_end", step_peak_bytes=360 * MIB)
    run.adam(96 * MIB)
    run.frame(216 * MIB, phase="optimizer", boundary="optimizer_start", step_peak_bytes=360 * MIB)


def test_the_first_step_is_predicted_before_its_optimizer() -> None:
    """GIVEN forward and backward of the first step, THEN the state still to appear and foreach's copy are on top."""
    run = Run()
    published_mlp(run)

    forecast = forecast_of(run)

    assert forecast.kind == "predicted"
    assert forecast.first_step_bytes == (216 + 192 + 96) * MIB
    # From the second step on the same backward stands on top of the state.
    assert forecast.allocated_bytes == (360 + 192) * MIB


def test_the_prediction_is_scored_as_it_was_made() -> None:
    """GIVEN the first step is over, THEN predicted and actual stand side by side, and the line says by how much."""
    run = Run()
    published_mlp(run)
    run.frame(408 * MIB, phase="optimizer", step_peak_bytes=504 * MIB)
    run.end_step(408 * MIB, 504 * MIB, classification=classified(408 * MIB, optimizer_state=192 * MIB))
    run.adam(96 * MIB, state=192 * MIB, steps=1)

    forecast = forecast_of(run)
    view = build_view(run.session, "cuda:0", run.now_ns)

    assert forecast.first_step_bytes == 504 * MIB
    assert forecast.first_step_actual is not None
    assert forecast.allocated_bytes == (360 + 192) * MIB
    assert "504.0 MiB predicted before its optimizer ran, 504.0 MiB actual (+0.0 %)" in view.forecast[-1]


def test_whole_steps_with_state_take_over() -> None:
    """GIVEN a whole step with state in memory, THEN the highest such step is the forecast, not the first step's."""
    run = Run()
    published_mlp(run)
    run.end_step(408 * MIB, 504 * MIB, classification=classified(408 * MIB, optimizer_state=192 * MIB))
    run.adam(96 * MIB, state=192 * MIB, steps=1)
    run.end_step(408 * MIB, 540 * MIB)
    run.end_step(408 * MIB, 520 * MIB)

    forecast = forecast_of(run)

    assert forecast.allocated_bytes == 540 * MIB
    assert "step 2" in forecast.basis


def test_during_the_first_forward_it_is_a_lower_bound() -> None:
    """Before the end of the first backward more may be to come."""
    run = Run()
    run.adam(96 * MIB)
    run.frame(96 * MIB, phase="forward", boundary="forward_start")
    run.frame(150 * MIB, phase="forward", step_peak_bytes=150 * MIB)

    assert forecast_of(run).kind == "lower_bound"


def test_an_unknown_optimizer_has_no_prediction() -> None:
    """What cannot be told is not told."""
    run = Run()
    run.adam(96 * MIB, name="Adam8bit")
    run.frame(96 * MIB, phase="forward", boundary="forward_start")
    run.frame(150 * MIB, phase="backward", boundary="backward_end", step_peak_bytes=200 * MIB)

    forecast = forecast_of(run)
    view = build_view(run.session, "cuda:0", run.now_ns)

    assert forecast.kind == "lower_bound"
    assert forecast.allocated_bytes == 200 * MIB
    assert forecast.first_step_bytes is None
    assert any("Adam8bit" in line for line in view.forecast)


def test_gradients_may_stay_until_a_second_pass_is_seen() -> None:
    """GIVEN one backward pass, THEN both are told: the peak without gradients before it, and with them."""
    run = Run()
    published_mlp(run)

    forecast = forecast_of(run)

    assert forecast.kept_bytes == (360 + 96 + 192) * MIB
    assert any("up to 648.0 MiB if gradients stay" in line for line in forecast_lines(forecast, Ladder()))


def test_what_stays_is_known_after_a_second_pass() -> None:
    """GIVEN two backward passes before the first optimizer step, THEN their peak is all that there is to say."""
    run = Run()
    run.frame(96 * MIB, phase="forward", boundary="forward_start", step_peak_bytes=96 * MIB)
    run.frame(184 * MIB, phase="backward", boundary="backward_start", step_peak_bytes=208 * MIB)
    run.frame(280 * MIB, phase="backward", boundary="backward_start", step_peak_bytes=300 * MIB)
    run.frame(216 * MIB, phase="backward", boundary="backward_end", step_peak_bytes=440 * MIB)
    run.adam(96 * MIB)
    run.frame(216 * MIB, phase="optimizer", boundary="optimizer_start", step_peak_bytes=440 * MIB)

    forecast = forecast_of(run)

    assert forecast.kept_bytes is None
    assert forecast.allocated_bytes == (440 + 192) * MIB


def test_sgd_needs_no_state() -> None:
    """Whole steps without state are as good as any."""
    run = Run()
    run.adam(96 * MIB, name="SGD")
    run.frame(96 * MIB, phase="forward", boundary="forward_start")
    run.end_step(96 * MIB, 300 * MIB)
    run.end_step(96 * MIB, 310 * MIB)

    forecast = forecast_of(run)

    assert (forecast.allocated_bytes, forecast.kind) == (310 * MIB, "predicted")


def test_the_peak_counter_helps_where_steps_are_lower_bounds() -> None:
    """GIVEN no step's peak is known exactly, THEN none was higher than what torch counted since the start."""
    run = Run()
    run.adam(96 * MIB, state=192 * MIB, steps=5)
    for _ in range(3):
        run.end_step(400 * MIB, 500 * MIB, exact=False, allocated_peak_bytes=560 * MIB)

    forecast = forecast_of(run)

    assert (forecast.allocated_bytes, forecast.kind, forecast.basis) == (
        560 * MIB,
        "predicted",
        "highest since the start",
    )


def test_attached_late_only_what_is_seen_counts() -> None:
    """GIVEN state is there already and no whole step was seen, THEN there is a lower bound and no first step."""
    run = Run()
    run.step = 900
    run.adam(96 * MIB, state=192 * MIB, steps=900)
    run.frame(400 * MIB, phase="forward", step_peak_bytes=450 * MIB)

    forecast = forecast_of(run)

    assert (forecast.allocated_bytes, forecast.kind) == (450 * MIB, "lower_bound")
    assert forecast.first_step_bytes is None


@pytest.mark.parametrize(
    ("name", "options", "factor"),
    [
        ("Adam", {}, 2),
        ("AdamW", {"amsgrad": True}, 3),
        ("SGD", {"momentum": 0}, 0),
        ("SGD", {"momentum": 0.9}, 1),
        ("RMSprop", {"momentum": 0.9, "centered": True}, 3),
        ("RMSprop", {}, 1),
        ("Adadelta", {}, 2),
        ("Rprop", {}, 2),
        ("LBFGS", {}, None),
    ],
)
def test_state_by_class(name: str, options: dict[str, object], factor: int | None) -> None:
    """Parameter-shaped tensors of torch's own classes; none for those of another shape."""
    assert state_factor(Optimizer(name, options, {"cuda:0": 100}, 25)) == factor


def test_state_that_is_there_is_not_to_come() -> None:
    """Adagrad makes it when it is made; the others at their first step."""
    session = Session(1)
    assert missing_state_bytes(session, Optimizer("Adagrad", {}, {"cuda:0": 100}, 25), "cuda:0") == 0
    assert missing_state_bytes(session, Optimizer("Adam", {}, {"cuda:0": 100}, 25, {"cuda:0": 200}, 1), "cuda:0") == 0
    assert missing_state_bytes(session, Optimizer("Adam", {}, {"cuda:0": 100}, 25), "cuda:1") == 0


def test_its_own_step_goes_before_the_table() -> None:
    session = Session(1)
    session.apply_trial(OptimizerTrial(1, "package.module:Adam", "cuda:0", 1000, 512, 1536, 256))
    optimizer = Optimizer("Adam", {}, {"cuda:0": 1000}, 250)
    assert missing_state_bytes(session, optimizer, "cuda:0") == 512
    assert temporary_bytes(session, optimizer, "cuda:0", first=True) == 1024
    assert temporary_bytes(session, optimizer, "cuda:0") == 256
    refused = OptimizerTrial(2, "package.module:Adam", "cuda:0", 1000, reason="its class is in the script itself")
    session.apply_trial(refused)
    assert missing_state_bytes(session, optimizer, "cuda:0") == 2000


def steady(run: Run, peak: int, reserved: int, used: int, **fields: object) -> None:
    """A run in its third step, with the driver read."""
    run.adam(GIB, state=2 * GIB, steps=1)
    for _ in range(3):
        run.end_step(4 * GIB, peak, reserved=reserved, **fields)
    run.driver(used, used)
    run.frame(4 * GIB, reserved, phase="forward", **fields)


def test_a_full_reserve_is_not_out_of_memory() -> None:
    """GIVEN reserved fills the device and half of it is reusable cache, THEN it fits, and nobody says OOM."""
    run = Run()
    steady(run, peak=10 * GIB, reserved=23 * GIB, used=24 * GIB - MIB)

    verdict = build_view(run.session, "cuda:0", run.now_ns).verdict

    assert verdict.level == "good"
    assert verdict.text.startswith("fits, 5")


def test_too_much_is_said_before_it_happens() -> None:
    """GIVEN parameters and gradients fill most of the device, THEN Adam's state does not fit, and by how much."""
    run = Run()
    run.frame(8 * GIB, phase="forward", boundary="forward_start")
    run.adam(8 * GIB)
    run.frame(17 * GIB, phase="backward", boundary="backward_end", step_peak_bytes=18 * GIB)
    run.driver(18 * GIB, 18 * GIB)
    run.frame(17 * GIB, phase="optimizer", boundary="optimizer_start", step_peak_bytes=18 * GIB)

    verdict = build_view(run.session, "cuda:0", run.now_ns).verdict

    assert verdict.level == "bad"
    assert verdict.text.startswith("does not fit, short by 18.0 GiB in the first optimizer step: ")


def test_little_to_spare_is_a_warning() -> None:
    """Less than the policy's share."""
    run = Run()
    steady(run, peak=23 * GIB, reserved=23 * GIB, used=23 * GIB + 200 * MIB)

    assert build_view(run.session, "cuda:0", run.now_ns).verdict.level == "warning"


def test_pinned_holes_count_against_the_margin() -> None:
    """GIVEN the margin is smaller than the holes that cannot be given back, THEN that is said."""
    run = Run()
    steady(
        run,
        peak=22 * GIB + 512 * MIB,
        reserved=23 * GIB,
        used=23 * GIB,
        inactive_split_bytes=2 * GIB + MIB,
        blocks=blocks(inactive_split_bytes=2 * GIB + MIB, num_pinned_segments=41),
    )

    verdict = build_view(run.session, "cuda:0", run.now_ns).verdict

    assert verdict.level == "warning"
    assert "pinned holes" in verdict.text


def test_an_out_of_memory_error_speaks_first() -> None:
    """With what was asked for, and whether the program lives on."""
    run = Run()
    steady(run, peak=10 * GIB, reserved=23 * GIB, used=23 * GIB)
    figures = {"asked_bytes": 2 * GIB, "device_free_bytes": 400 * MIB, "allocated_bytes": 21 * GIB}
    run.session.apply(Event("oom", run.now_ns, 3, "forward", "cuda:0", figures), 0)

    alive = build_view(run.session, "cuda:0", run.now_ns).verdict
    run.session.ended(run.now_ns, 1, "OutOfMemoryError")
    dead = build_view(run.session, "cuda:0", run.now_ns).verdict

    told = "out of memory in forward, step 4: asked for 2.0 GiB · driver free 400.0 MiB · live 21.0 GiB"
    assert alive.text == f"{told}; the program goes on"
    assert dead.text.startswith("OUT OF MEMORY in forward, step 4")
    assert (alive.level, dead.level) == ("bad", "bad")
    much_later = build_view(run.session, "cuda:0", run.now_ns + 10 * 60 * SECOND)
    assert much_later.state == "ended"


def test_a_caught_error_is_not_forgotten_at_once() -> None:
    """GIVEN one that the program caught, THEN what it asked for is in no peak, and the verdict waits for 20 steps."""
    run = Run()
    steady(run, peak=10 * GIB, reserved=12 * GIB, used=13 * GIB)
    figures = {"asked_bytes": 2 * GIB, "device_free_bytes": 400 * MIB, "allocated_bytes": 21 * GIB}
    run.session.apply(Event("oom", run.now_ns, 3, "forward", "cuda:0", figures), 0)
    run.now_ns += DEFAULT.recent_ns
    run.end_step(4 * GIB, 10 * GIB, reserved=12 * GIB)
    run.driver(13 * GIB, 13 * GIB)
    run.frame(4 * GIB, 12 * GIB)

    view = build_view(run.session, "cuda:0", run.now_ns)

    assert view.verdict.level == "warning"
    assert view.verdict.text.startswith("fits, 54 % to spare: ")
    assert view.verdict.text.endswith(" · out of memory in forward, 1 step ago")
    line = "out of memory in forward, step 4: 2.0 GiB asked for on top of 21.0 GiB are not in this"
    assert line in view.forecast
    for _ in range(20):
        run.end_step(4 * GIB, 10 * GIB, reserved=12 * GIB)
    view = build_view(run.session, "cuda:0", run.now_ns)
    assert (view.verdict.level, line in view.forecast) == ("good", True)


def test_retries_of_what_fits_are_the_caches() -> None:
    """GIVEN live tensors that fit and a cache that fills the device, THEN both are said; of this device alone."""
    run = Run()
    steady(run, peak=10 * GIB, reserved=23 * GIB, used=24 * GIB - MIB)
    fits = build_view(run.session, "cuda:0", run.now_ns).verdict.text
    for number, device in enumerate(("cuda:1", "cuda:0", "cuda:0")):
        run.session.apply(Event("alloc_retry", run.now_ns + number, 3, "forward", device), 0)

    verdict = build_view(run.session, "cuda:0", run.now_ns + SECOND).verdict

    told = "2 allocation retries in the last minute: the cache fills the device now and then"
    assert (verdict.level, verdict.text) == ("warning", f"{fits} · {told}")
    later = build_view(run.session, "cuda:0", run.now_ns + DEFAULT.recent_ns + SECOND).verdict
    assert (later.level, later.text) == ("good", fits)


def test_a_cap_of_its_own_is_the_capacity() -> None:
    """GIVEN a process that may reserve 12 of the device's 24 GiB, THEN nothing beside the allocator is part of it."""
    run = Run()
    steady(run, peak=9 * GIB, reserved=10 * GIB, used=11 * GIB, allowed_bytes=12 * GIB)

    view = build_view(run.session, "cuda:0", run.now_ns)

    own = "this process may have (set_per_process_memory_fraction)"
    assert view.verdict.text == f"fits, 25 % to spare: predicted peak allocated 9.0 GiB of 12.0 {own}"
    assert "this process may have 12.0 GiB (set_per_process_memory_fraction)" in view.forecast
    assert {row.key: row.figure.value for row in view.rows}["headroom_bytes"] == 3 * GIB
    assert [rule.label for rule in view.rules if rule.key == "capacity"] == [
        "capacity 24.0 GiB",
        "may reserve 12.0 GiB",
    ]
    run.frame(4 * GIB, 10 * GIB, step_peak_bytes=13 * GIB, allowed_bytes=12 * GIB)
    assert build_view(run.session, "cuda:0", run.now_ns).verdict.text.startswith("does not fit, short by 1.0 GiB: ")
    # Once it is lifted the device counts again.
    run.frame(4 * GIB, 10 * GIB, step_peak_bytes=13 * GIB)
    assert build_view(run.session, "cuda:0", run.now_ns).verdict.text.startswith("fits, 42 % to spare: ")


def test_a_cap_above_what_is_left_of_the_device_is_none() -> None:
    """GIVEN another process that leaves less than the cap, THEN the device decides."""
    run = Run()
    steady(run, peak=9 * GIB, reserved=10 * GIB, used=23 * GIB, allowed_bytes=12 * GIB)
    assert build_view(run.session, "cuda:0", run.now_ns).verdict.text == (
        "fits, 8 % to spare: predicted peak 22.0 GiB of 24.0"
    )


def test_a_cap_alone_tells_only_what_does_not_fit() -> None:
    """GIVEN no figures of the driver, THEN it is not known what else is on the device."""
    run = Run()
    run.adam(GIB, state=2 * GIB, steps=1)
    for peak, text in ((9 * GIB, "what else is on the device is not known"), (13 * GIB, "does not fit, short by 1.0")):
        run.end_step(4 * GIB, peak, allowed_bytes=12 * GIB)
        run.end_step(4 * GIB, peak, allowed_bytes=12 * GIB)
        assert text in build_view(run.session, "cuda:0", run.now_ns).verdict.text


def test_what_happens_beside_the_first_step_is_not_taken_for_it() -> None:
    """A checkpoint loaded before the first forward, a compilation and an evaluation in the middle of it."""
    plain, run = Run(), Run()
    published_mlp(plain)
    run.frame(90 * MIB, phase="checkpoint")
    run.frame(96 * MIB, phase="startup")
    run.frame(96 * MIB, phase="forward", boundary="forward_start", step_peak_bytes=96 * MIB)
    run.frame(300 * MIB, phase="compilation", step_peak_bytes=96 * MIB)
    run.frame(110 * MIB, phase="evaluation", boundary="evaluation_start", step_peak_bytes=96 * MIB)
    first, expected = run.session.first_step("cuda:0"), plain.session.first_step("cuda:0")
    assert first is not None
    assert expected is not None
    assert (first.base_bytes, first.allocated_bytes, first.peak_bytes) == (96 * MIB, 96 * MIB, 96 * MIB)
    assert first.base_bytes == expected.base_bytes


@pytest.mark.parametrize("strangers", [1, 40])
def test_on_the_host_strangers_are_no_need_of_this_process(strangers: int) -> None:
    """GIVEN what others hold, THEN it bounds what the process can have, and is no part of the predicted peak."""
    session = Session(1)
    session.apply(hello(Device("host", "host", "CPU", "mallinfo2")), 0)
    available = (64 - 3 - strangers) * GIB
    session.apply_host(HostReading(50, True, rss_bytes=3 * GIB, total_bytes=64 * GIB, available_bytes=available))
    figures = DeviceFrame(
        "host",
        allocated_bytes=2 * GIB,
        allocated_peak_bytes=9 * GIB,
        step_peak_bytes=9 * GIB,
        reserved_bytes=3 * GIB,
        rss_bytes=3 * GIB,
    )
    session.apply(Frame(1, 100, 0, 1, "backward", 90, (figures,)), 0)

    view = build_view(session, "host", 100)

    rows = {row.key: row.figure.value for row in view.rows}
    assert rows["predicted_peak_bytes"] == 10 * GIB
    assert rows["headroom_bytes"] == available - 7 * GIB
    assert rows["other_process_bytes"] == strangers * GIB
    assert f"predicted peak ≥ 10.0 GiB of {64 - strangers}.0 it can have" in view.verdict.text
    assert f"needs ≥ 10.0 GiB of the {64 - strangers}.0 GiB it can have" in view.forecast[0] + view.forecast[1]

    session.apply_host(HostReading(60, True, rss_bytes=3 * GIB, total_bytes=64 * GIB, available_bytes=4 * GIB))
    assert "does not fit, short by 3.0 GiB" in build_view(session, "host", 100).verdict.text


def test_the_end_of_backward_is_seen_in_the_frames_after_it() -> None:
    """GIVEN nothing was read at its end, THEN a frame between the passes says that no more of backward is to come."""
    run = Run()
    run.frame(8 * GIB, phase="forward", boundary="forward_start")
    run.adam(4 * GIB)
    run.driver(18 * GIB, 18 * GIB)
    run.frame(10 * GIB, phase="backward", step_peak_bytes=11 * GIB)
    before = forecast_of(run)
    run.frame(12 * GIB, phase="between", step_peak_bytes=13 * GIB)

    assert (before.kind, forecast_of(run).kind) == ("lower_bound", "predicted")


def test_backward_is_predicted_from_where_it_begins() -> None:
    """GIVEN a first forward, THEN the largest activation twice on top of it, or all gradients where those are more."""
    run = Run()
    run.frame(8 * GIB, phase="forward", boundary="forward_start")
    run.adam(4 * GIB)
    look = replace(classified(11 * GIB, phase="backward", activations=3 * GIB), largest_activation_bytes=GIB)
    run.driver(11 * GIB, 11 * GIB)
    run.frame(11 * GIB, phase="backward", boundary="backward_start", classification=look)
    forecast = forecast_of(run)

    assert forecast.kind == "predicted"
    # Adam's state of 8 GiB and foreach's copy of 4 on top of 8 + 4 of gradients; forward and backward are below that.
    assert forecast.allocated_bytes == (8 + 4 + 8 + 4) * GIB
    assert "backward to come" in forecast.basis
