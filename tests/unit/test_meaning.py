"""What the figures mean: of a recorded training whose batches differ, and of figures that are not there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from memtui.analysis import units
from memtui.analysis.build import build_view
from memtui.analysis.meaning import meaning_line, meanings
from memtui.analysis.optimizers import optimizer_state
from memtui.analysis.view import OptimizerState, View
from memtui.session.readings import OptimizerTrial
from memtui.session.session import Session
from memtui.sources.log_reader import LogReader
from memtui.wire.frames import Model, Optimizer
from tests.support.sessions import MIB, Run, classified

#: An MLP of 25,175,040 parameters with Adam on a virtual GPU whose context takes 400 MiB; batches of 2048, 2048, 1024,
#: 4096, 512, 2048, 3072 and 2048 rows. Every boundary, and every fourth frame between.
RECORDING = Path(__file__).parent.parent / "recordings" / "varying-batch.log"
PARAMETERS = 25_175_040 * 4


@pytest.fixture(scope="module")
def reader() -> LogReader:
    return LogReader(str(RECORDING))


def view_at(reader: LogReader, step: int, boundary: str) -> View:
    """The screen at a boundary."""
    lines = map(json.loads, RECORDING.read_text(encoding="utf-8").splitlines())
    (time_ns,) = (
        line["time_ns"]
        for line in lines
        if line["kind"] == "frame" and (line["step"], line.get("boundary")) == (step, boundary)
    )
    return build_view(reader.session_at(time_ns), "cuda:0", time_ns)


def answer(view: View, question: str) -> str:
    """The answer to the question with this word in it; empty where it is not asked."""
    found = [meaning.answer for meaning in meanings(view) if question in meaning.question]
    return found[0] if found else ""


def figures(view: View) -> dict[str, int]:
    """The column's figures."""
    return {row.key: row.figure.value for row in view.rows if row.figure.value is not None}


def test_the_dominant_tenant_is_that_of_the_fullest_moment(reader: LogReader) -> None:
    """GIVEN a training that is between two steps, THEN what is told is of where most was allocated, and says so."""
    view = build_view(reader.whole, "cuda:0", reader.end_ns)

    assert view.fullest is not None
    assert (view.fullest.phase, view.fullest.step) == ("backward", 3)  # the batch of 4096 rows
    assert sum(size for _, size in view.fullest.parts) == view.fullest.allocated_bytes
    assert answer(view, "Who holds").startswith(
        "At the fullest moment that was looked at (in backward, step 4), 464.4 MiB were allocated. "
        "Optimizer state is the largest part: 192.1 MiB, 41 %"
    )
    assert meaning_line(view).startswith("optimizer state leads: 192.1 MiB of 464.4, whatever the batch · ")


def test_a_tenant_with_half_of_it_dominates(reader: LogReader) -> None:
    """GIVEN the first forward, without optimizer state, THEN parameters are more than half, and do not grow."""
    view = view_at(reader, 0, "backward_start")

    assert meaning_line(view).startswith("parameters dominate: 96.0 MiB of 184.2, whatever the batch · ")


def test_what_grows_with_the_batch_and_what_was_seen(reader: LogReader) -> None:
    """GIVEN batches of 512 to 4096 rows, THEN kinds are told apart and added up, and extremes are named."""
    view = build_view(reader.whole, "cuda:0", reader.end_ns)

    said = answer(view, "grows")

    assert said.startswith("Activations and inputs grow with it: 160.0 MiB at that moment. ")
    assert "Parameters, gradients, optimizer state and workspaces do not, 304.4 MiB then" in said
    # 4096 rows of three layers' inputs and results in fp32, and 512 rows.
    assert said.endswith("as backward began: 18.0 MiB of activations at least (step 5), 144.0 MiB at most (step 4).")
    assert view.spread is not None
    assert view.spread.most_bytes == pytest.approx(8 * view.spread.least_bytes, rel=1e-3)  # rounding up, and a loss


def test_state_is_announced_and_then_named(reader: LogReader) -> None:
    """GIVEN the first optimizer step is about to begin, and then over, THEN predicted, and then measured: both 2 x."""
    before, after = view_at(reader, 0, "optimizer_start"), build_view(reader.whole, "cuda:0", reader.end_ns)

    assert before.optimizer_state is not None
    assert (before.optimizer_state.kind, before.optimizer_state.state_bytes) == ("predicted", 2 * PARAMETERS)
    assert "still to appear: +192.1 MiB, 2 x parameters (96.0 MiB)" in answer(before, "first step")
    assert after.optimizer_state is not None
    assert (after.optimizer_state.kind, after.optimizer_state.state_bytes) == ("measured", 2 * PARAMETERS)
    assert answer(after, "first step").startswith("The state of Adam: +192.1 MiB, 2 x parameters (96.0 MiB). It stays")
    assert any(event.text == "optimizer state appeared: +192.1 MiB, 2 x parameters" for event in after.events)


def test_reserved_and_driver_are_told_with_the_columns_figures(reader: LogReader) -> None:
    """Every sum in the sentences is one of figures that are on the screen."""
    view = build_view(reader.whole, "cuda:0", reader.end_ns)
    known = figures(view)
    reserved, allocated, outside = (known[f"{key}_bytes"] for key in ("reserved", "allocated", "non_torch"))

    said = answer(view, "reserved")
    driver = answer(view, "driver")

    assert said.startswith(f"PyTorch took {units.size(reserved)} from the driver (reserved)")
    assert f"live tensors fill {units.size(allocated)} of it" in said
    assert f"keeps the other {units.size(reserved - allocated)}" in said
    assert outside == 400 * MIB
    assert driver.startswith(f"It counts {units.size(reserved + outside)} for this process: {units.size(reserved)}")
    assert "400.0 MiB outside its allocator" in driver


def grown(step_bytes: int, step_blocks: int) -> View:
    """The screen after the beginnings of 80 forwards, two steps apart, on a device of 24 GiB."""
    run = Run()
    for place in range(80):
        held = 2048 * MIB + 2 * place * step_bytes
        run.driver(held + 1024 * MIB, held)
        run.frame(held, step=2 * place, boundary="forward_start", num_blocks=400 + 2 * place * step_blocks)
    return build_view(run.session, "cuda:0", run.now_ns)


def test_a_leak_is_explained_with_its_figures() -> None:
    """GIVEN 8 MiB and three blocks a step, THEN what grows, since when, until when, and where to look."""
    view = grown(8 * MIB, 3)

    said = answer(view, "from step to step")

    assert said.startswith(
        "A leak: what is allocated as a forward begins rises by 8.0 MiB a step (steps 1 to 159), in 3.0 more blocks a "
        "step, and does not come down again: full in about "
    )
    assert ".item() and .detach()" in said
    assert view.growth.endswith(said[said.index(": full in about") : said.index(". Something keeps")])


def test_growth_in_as_many_blocks_is_called_no_leak() -> None:
    said = answer(grown(8 * MIB, 0), "from step to step")
    assert said.startswith("What is allocated as a forward begins rises by 8.0 MiB a step (steps 1 to 159), but in as ")
    assert "longer batches" in said


def test_no_leak_is_said_to_be_none_so_far(reader: LogReader) -> None:
    """GIVEN looks that can be compared THEN it is told what a leak would be; GIVEN too few THEN nothing is."""
    assert answer(build_view(reader.whole, "cuda:0", reader.end_ns), "from step to step") == ""
    run = Run()
    for step in range(12):
        look = classified(100 * MIB, step=step, phase="forward", parameters=90 * MIB)
        run.frame(100 * MIB, step=step, phase="forward", classification=look)
    said = answer(build_view(run.session, "cuda:0", run.now_ns), "from step to step")
    assert said.startswith(
        "No leak was found so far. It would be one if what is allocated as forwards begin rose evenly"
    )
    assert said.endswith("By category: nothing grows: steps 1 to 12 compared in forward.")


def test_nothing_is_said_of_what_is_not_known() -> None:
    """GIVEN no categories, no model, no driver, THEN neither a line nor an answer that would need them."""
    run = Run()
    assert meanings(build_view(run.session, "cuda:0", 0)) == ()
    run.frame(10 * MIB, 30 * MIB)

    view = build_view(run.session, "cuda:0", run.now_ns)

    assert meaning_line(view) == ""
    assert [meaning.question for meaning in meanings(view)] == ["Why is more reserved than allocated?"]


def test_a_driver_that_names_no_process() -> None:
    """GIVEN a list of processes without this one, THEN what it counts beyond PyTorch is nobody's, and told as such."""
    run = Run()
    run.frame(100 * MIB, 200 * MIB)
    run.driver(900 * MIB, None)
    run.frame(100 * MIB, 200 * MIB)

    said = answer(build_view(run.session, "cuda:0", run.now_ns), "driver")

    assert said.startswith("It counts 900.0 MiB used on the whole device, 700.0 MiB more than PyTorch reserved here")
    assert "does not tell" in said


def test_what_is_unattributed_is_no_tenant() -> None:
    """GIVEN mostly blocks that nobody is known to own, THEN that is what is said, and it is not counted to either."""
    run = Run()
    run.frame(100 * MIB, classification=classified(100 * MIB, phase="backward", step=1, parameters=10 * MIB))

    view = build_view(run.session, "cuda:0", run.now_ns)

    assert meaning_line(view).startswith("most is unattributed: 90.0 MiB of 100.0 · ")
    assert "The other 90.0 MiB are unattributed" in answer(view, "grows")


def test_the_optimizers_own_temporaries_do_not_grow() -> None:
    """GIVEN a moment in the optimizer's step, THEN temporaries are parameters' copies; in backward they are not."""
    for phase, expected in (
        ("optimizer", "Activations grow with it: 0 B"),
        ("backward", "Activations and temporaries"),
    ):
        run = Run()
        run.frame(90 * MIB, classification=classified(90 * MIB, phase=phase, parameters=30 * MIB, temporaries=60 * MIB))

        assert answer(build_view(run.session, "cuda:0", run.now_ns), "grows").startswith(expected)


def test_state_of_other_optimizers() -> None:
    """SGD keeps none; one that is not in the table is not predicted; state on another device is not told here."""

    session = Session(1)

    def state(name: str, held: dict[str, int] | None = None, steps: int = 0) -> OptimizerState | None:
        optimizer = Optimizer(name, {}, {"cuda:0": PARAMETERS}, 25_175_040, held, steps)
        session.apply(Model(session.revision, (), 1, 1, {}, {}, (optimizer,)), 1)
        return optimizer_state(session, "cuda:0")

    assert state("SGD") == OptimizerState("SGD", 0, PARAMETERS, "predicted")
    assert state("SGD", None, 3) == OptimizerState("SGD", 0, PARAMETERS, "measured")
    assert state("Adafactor") is None
    assert state("AdamW", {"host": 2 * PARAMETERS}, 3) is None
    assert state("Lion", {"cuda:0": PARAMETERS}, 1) == OptimizerState("Lion", PARAMETERS, PARAMETERS, "measured")
    session.apply_trial(OptimizerTrial(9, "lion:Lion", "cuda:0", PARAMETERS, state_bytes=PARAMETERS // 2))
    assert state("Lion") == OptimizerState("Lion", PARAMETERS // 2, PARAMETERS, "predicted", tried=True)


def test_what_the_program_has_named_is_not_said_to_grow() -> None:
    """GIVEN a cache that was tagged, THEN no sentence says that it grows with the batch, nor that it does not."""
    run = Run()
    found = classified(100 * MIB, phase="backward", inputs=70 * MIB, activations=20 * MIB, buffers=8 * MIB)
    found = replace(found, tagged={"inputs": 60 * MIB, "buffers": 3 * MIB})
    run.frame(100 * MIB, 100 * MIB, classification=found)

    view = build_view(run.session, "cuda:0", run.now_ns)

    line = meaning_line(view)
    assert line.startswith(
        "inputs dominate: 70.0 MiB of 100.0, 60.0 MiB of it tagged, which may not grow with the batch"
    )
    assert "activations grow with it" in line
    assert "70 % (60.0 MiB of it named by memtui.tag())." in answer(view, "Who holds")
    said = answer(view, "grows")
    assert said.startswith("Activations and inputs grow with it: 30.0 MiB at that moment. ")
    assert "optimizer state do not, 5.0 MiB then" in said
    assert said.endswith("Of the 63.0 MiB named by memtui.tag() it is not known whether they do.")


def test_inputs_that_are_all_named_are_not_among_what_grows() -> None:
    run = Run()
    found = classified(100 * MIB, phase="backward", inputs=70 * MIB, temporaries=30 * MIB)
    run.frame(100 * MIB, 100 * MIB, classification=replace(found, tagged={"inputs": 70 * MIB}))

    view = build_view(run.session, "cuda:0", run.now_ns)

    assert ", all of it tagged, which may not grow" in meaning_line(view)
    assert answer(view, "grows").startswith("Activations and temporaries grow with it: 30.0 MiB at that moment. ")
