"""The report: what it says of runs of every kind, and its three forms."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest
from markdown_it import MarkdownIt

from memtui.analysis.oom.story import build_story
from memtui.analysis.report import document, markdown, plain
from memtui.analysis.report.build import build_report
from memtui.analysis.report.facts import Report
from memtui.analysis.report.seen import Seen
from memtui.wire.frames import CAME_LATE, Bye, Event, Model, Optimizer
from tests.support.sessions import GIB, MIB, Run, classified

PARAMETERS, STATE = 100 * MIB, 200 * MIB
SECTIONS = {
    "first_step",
    "step_peak",
    "dominates",
    "levers",
    "growth",
    "reserved",
    "driver",
    "exercised",
    "forecasts",
}


class Watched(Run):
    """A run whose frames the report is told of."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.seen = Seen()

    def frame(self, allocated: Optional[int], reserved: Optional[int] = None, **fields: Any) -> Any:
        frame = super().frame(allocated, reserved, **fields)
        self.seen(self.session)
        return frame

    def report(self) -> Report:
        return build_report(self.session, self.seen, self.now_ns)

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(document.document(self.report())))
        return found

    def text(self) -> str:
        return "\n".join(plain.lines(self.report()))


def first_step(run: Watched) -> None:
    """An Adam with a boundary at each point of its first step."""
    run.frame(PARAMETERS, phase="startup")
    run.frame(PARAMETERS + 8 * MIB, boundary="forward_start", phase="forward")
    run.frame(300 * MIB, boundary="backward_start", phase="backward")
    run.frame(2 * PARAMETERS, boundary="optimizer_start", phase="optimizer", allocated_peak_bytes=350 * MIB)
    run.adam(PARAMETERS, state=STATE, steps=1)


def trained(**fields: Any) -> Watched:
    """A run of some steps that has ended well."""
    run = Watched(**fields)
    first_step(run)
    run.step = 1
    run.frame(2 * PARAMETERS + STATE, boundary="optimizer_end", allocated_peak_bytes=500 * MIB)
    for _ in range(4):
        run.end_step(
            PARAMETERS + STATE,
            600 * MIB,
            allocated_peak_bytes=600 * MIB,
            reserved_peak_bytes=700 * MIB,
            inactive_split_bytes=0,
            num_alloc_retries=0,
            num_ooms=0,
        )
    run.driver(2 * GIB, GIB)
    run.session.ended(run.now_ns, 0)
    return run


def test_each_point_of_the_first_step() -> None:
    """GIVEN a frame at each boundary, THEN what was allocated there, and the rest of the page, to the byte."""
    found = trained().document()

    device = found["devices"]["cuda:0"]
    assert {key: row["allocated_bytes"]["value"] for key, row in device["first_step"].items()} == {
        "after_creation": PARAMETERS + 8 * MIB,
        "after_forward": 300 * MIB,
        "after_backward": 2 * PARAMETERS,
        "after_first_step": 2 * PARAMETERS + STATE,
    }
    assert found["model"]["parameters"]["parameters"] == {"value": PARAMETERS // 4, "how": "measured"}
    assert found["model"]["optimizer"]["state_bytes"] == {"value": STATE, "how": "measured"}
    assert device["step_peak"]["run"]["allocated_peak_bytes"] == {"value": 600 * MIB, "how": "measured"}
    assert device["reserved"]["peak"]["reserved_bytes"]["value"] == 700 * MIB
    assert device["growth"]["fragmentation"]["unused_at_peak_bytes"] == {"value": 100 * MIB, "how": "derived"}
    assert device["driver"]["process_bytes"]["value"] == GIB
    assert device["driver"]["non_torch_bytes"] == {
        "value": GIB - PARAMETERS - STATE,
        "how": "derived",
        "note": "process - reserved: context, NCCL, cuBLAS; no leak",
    }
    assert found["ended"] == "exited with status 0"


def test_the_names_in_the_json() -> None:
    """Programs read them: they do not change within a version."""
    found = trained().document()

    assert found["version"] == document.VERSION == 1
    assert set(found) == {
        *("kind", "version", "program", "pid", "hostname", "torch", "ended", "exception", "exit_status", "steps"),
        *("rank", "ranks"),
        *("came_late", "watched_ns", "model", "devices", "notices"),
    }
    assert set(found["devices"]["cuda:0"]) == SECTIONS | {"name", "device_total_bytes", "short"}
    assert set(found["model"]) == {"parameters", "trained", "dtypes", "optimizer"}
    for section in (found["model"], *(found["devices"]["cuda:0"][key] for key in SECTIONS)):
        for row in section.values():
            figures = [each for each in row.values() if isinstance(each, dict)]
            assert all(set(figure) == {"value", "how"} for figure in figures)
            assert all((figure["value"] is None) == (figure["how"] == "unknown") for figure in figures)


def test_a_tick_that_came_before_the_steps_last_boundary() -> None:
    """GIVEN the agent's own frame at the first step's end just before the training's, THEN that of the boundary."""
    run = Watched()
    first_step(run)
    run.step = 1
    run.frame(399 * MIB)
    run.frame(2 * PARAMETERS + STATE, boundary="optimizer_end")
    row = run.document()["devices"]["cuda:0"]["first_step"]["after_first_step"]

    assert row["allocated_bytes"]["value"] == 2 * PARAMETERS + STATE
    assert row["note"].startswith("as it ended")


def test_a_step_of_which_only_a_tick_is_there() -> None:
    """GIVEN no frame at its end, THEN the first after it, and how long after."""
    run = Watched()
    first_step(run)
    run.step = 1
    run.frame(399 * MIB, step_since_ns=run.now_ns + 60_000_000)
    run.frame(PARAMETERS + STATE, boundary="forward_start", phase="forward")
    row = run.document()["devices"]["cuda:0"]["first_step"]["after_first_step"]

    assert (row["allocated_bytes"]["value"], row["note"]) == (399 * MIB, "40 ms after its end")


def test_who_came_late_saw_no_first_step() -> None:
    """GIVEN an agent that came while the program ran, THEN its first step is no first step, and that is said once."""
    run = trained(notices=(CAME_LATE,))
    found = run.document()

    rows = found["devices"]["cuda:0"]["first_step"].values()
    assert found["came_late"]
    assert {row["allocated_bytes"]["how"] for row in rows} == {"unknown"}
    assert [row["note"] for row in rows][1:] == ["as above"] * 3
    assert "startup" not in found["devices"]["cuda:0"]["step_peak"]
    assert "5 steps watched" in run.text()


def test_a_peak_that_no_step_was_seen_to_have() -> None:
    """GIVEN that PyTorch's counter rose between two frames some steps apart, THEN that peak, and those steps."""
    run = Watched()
    run.end_step(PARAMETERS, 300 * MIB, allocated_peak_bytes=300 * MIB)
    run.step = 6
    run.frame(PARAMETERS, allocated_peak_bytes=900 * MIB)

    assert "  peak allocated: 900.0 MiB, within steps 2 to 7\n" in run.text()


def test_a_counter_that_the_program_sets_back() -> None:
    """GIVEN a reset of the peak counter, THEN the highest before it, as a lower bound, and that it was set back."""
    run = Watched()
    run.frame(PARAMETERS, allocated_peak_bytes=900 * MIB)
    run.frame(PARAMETERS, allocated_peak_bytes=PARAMETERS)
    run.frame(PARAMETERS, allocated_peak_bytes=300 * MIB)
    row = run.document()["devices"]["cuda:0"]["step_peak"]["run"]

    assert row["allocated_peak_bytes"] == {"value": 900 * MIB, "how": "lower_bound"}
    assert "set it back once" in row["note"]


def failed(phase: str, *, allocated: int, batch: int = 16, step: int = 5) -> Watched:
    """A run whose request of 300 MiB failed in that phase, on a device without room."""
    run = Watched(argv=("train.py", "--batch-size", str(batch)))
    first_step(run)
    run.step = step
    held = PARAMETERS + STATE
    look = classified(held, step=step, parameters=PARAMETERS, optimizer_state=STATE)
    run.frame(held, classification=look, num_alloc_retries=1, num_ooms=1)
    figures = {
        "asked_bytes": 300 * MIB,
        "device_total_bytes": 24 * GIB,
        "device_free_bytes": 100 * MIB,
        "allocated_bytes": allocated,
        "reserved_bytes": allocated + MIB,
    }
    run.session.apply(Event("oom", run.now_ns, step, phase, "cuda:0", figures), run.now_ns)
    run.session.apply(Bye(run.now_ns, "OutOfMemoryError", "CUDA out of memory. Tried to allocate 300.00 MiB."), 0)
    run.session.ended(run.now_ns, 1)
    return run


@pytest.mark.parametrize(
    ("phase", "dominant", "rest"),
    [
        ("forward", "activations_bytes", 20 * GIB - PARAMETERS - STATE),
        ("backward", "activations_bytes", 20 * GIB - 2 * PARAMETERS - STATE),
        ("optimizer", "temporaries_bytes", 20 * GIB - 2 * PARAMETERS - STATE),
    ],
)
def test_what_held_the_memory_when_it_failed(phase: str, dominant: str, rest: int) -> None:
    """GIVEN what stays from step to step, THEN the rest is what the phase has, and adds up to what was allocated."""
    device = failed(phase, allocated=20 * GIB).document()["devices"]["cuda:0"]

    assert device["dominates"][dominant]["value"] == rest
    assert device["dominates"][dominant]["how"] == "derived"
    held = [row["value"] for row in device["dominates"].values()]
    assert sum(held) == 20 * GIB


def test_the_first_lever_is_of_what_dominates() -> None:
    """GIVEN activations that fill the device, THEN a smaller batch comes first, with what it saves; no state is cut."""
    run = failed("backward", allocated=20 * GIB)
    found = run.document()
    device = found["devices"]["cuda:0"]

    assert found["exception"] == "OutOfMemoryError"
    assert device["short"][1].startswith("cause: full device; 300.00 MiB were asked for")
    assert device["remedies"]["remedy_1"]["note"].startswith("batch 16 → 15")
    assert device["remedies"]["remedy_1"]["saved_bytes"]["value"] == (20 * GIB - 2 * PARAMETERS - STATE) // 16
    assert not any("8-bit" in row["note"] for row in device["remedies"].values())
    assert "standing" not in device["forecasts"]  # of a run that cannot go on so
    assert all(len(line) <= plain.WIDTH for line in run.text().splitlines())


def test_the_first_step_of_an_optimizer_that_does_not_fit() -> None:
    """GIVEN no state so far, THEN what the optimizer holds is that, and the cause says so."""
    run = Watched()
    run.frame(PARAMETERS, phase="startup")
    run.frame(2 * PARAMETERS, boundary="optimizer_start", phase="optimizer")
    run.adam(PARAMETERS)
    figures = {"asked_bytes": MIB, "allocated_bytes": 3 * PARAMETERS, "reserved_bytes": 3 * PARAMETERS}
    more = {"device_total_bytes": 3 * PARAMETERS, "device_free_bytes": 0}
    run.session.apply(Event("oom", run.now_ns, 0, "optimizer", "cuda:0", figures | more), run.now_ns)
    run.session.apply(Bye(run.now_ns, "OutOfMemoryError", "CUDA out of memory."), 0)
    run.session.ended(run.now_ns, 1)
    device = run.document()["devices"]["cuda:0"]

    assert device["short"][1].startswith("cause: first optimizer step; ")
    assert device["dominates"]["optimizer_state_bytes"]["value"] == PARAMETERS
    # Of all of it, as it would have been: twice the parameters of an Adam.
    assert device["remedies"]["remedy_1"]["note"].startswith("8-bit optimizer states")
    assert device["remedies"]["remedy_1"]["saved_bytes"]["value"] == 2 * PARAMETERS * 3 // 4


def test_an_exception_is_told_and_harmless() -> None:
    """GIVEN one whose text would act on a terminal and make a table, THEN in one line, as text."""
    run = trained()
    run.session.end = None
    run.session.apply(Bye(run.now_ns, "ValueError", "bad \x1b[31m| <b>file</b>\nof *mine*"), 0)
    run.session.ended(run.now_ns, 1)

    assert "\x1b" not in run.text()
    assert "ended by ValueError: bad | <b>file</b> of *mine*\n" in run.text()
    rendered = MarkdownIt("commonmark").enable("table").render("\n".join(markdown.lines(run.report())))
    assert "Ended by ValueError: bad | &lt;b&gt;file&lt;/b&gt; of *mine*" in rendered
    assert "<b>" not in rendered


def test_an_optimizer_without_state() -> None:
    """GIVEN steps of an SGD whose state was never told, THEN it keeps none; of an unknown class it is not known."""
    run = trained()
    for name, said in (("SGD", "SGD: no state"), ("Mine", "Mine: state not told")):
        optimizer = Optimizer(name, {}, {"cuda:0": PARAMETERS}, PARAMETERS // 4)
        run.now_ns += 1
        model = Model(run.now_ns, ("MLP",), 1, 1, {"cuda:0": PARAMETERS}, {}, (optimizer,))
        run.session.apply(model, 0)
        assert run.document()["model"]["optimizer"]["note"] == said


def test_a_leak_that_failed_is_the_cause_though_pieces_were_left() -> None:
    """GIVEN floors that rise evenly until a request finds its bytes in pieces only, THEN the leak, as the page says."""
    run = Watched()
    run.adam(PARAMETERS, state=STATE, steps=1)
    for step in range(200):
        run.frame(GIB + 4 * MIB * step, boundary="forward_start", phase="forward", num_blocks=300 + step)
        run.end_step(GIB + 4 * MIB * step, 2 * GIB + 4 * MIB * step, num_blocks=300 + step)
    allocated = GIB + 800 * MIB
    figures = {
        "asked_bytes": 16 * MIB,
        "device_total_bytes": 2 * GIB,
        "device_free_bytes": 9 * MIB,
        "allocated_bytes": allocated,
        "reserved_bytes": allocated + 17 * MIB,
    }
    oom = Event("oom", run.now_ns, 200, "forward", "cuda:0", figures)
    run.session.apply(oom, run.now_ns)
    run.session.apply(Bye(run.now_ns, "OutOfMemoryError", "CUDA out of memory."), 0)
    run.session.ended(run.now_ns, 1)
    short = run.document()["devices"]["cuda:0"]["short"]

    assert short[1].startswith("cause: leak; what is allocated grew by 4.0 MiB a step")
    assert build_story(run.session, oom).answer.sentence.partition(": ")[2] == short[1].partition("; ")[2]


def test_a_leak_comes_first() -> None:
    """GIVEN floors that rise evenly, THEN the growth leads, and what helps is to find it, not a smaller batch."""
    run = Watched()
    run.adam(PARAMETERS, state=STATE, steps=1)
    for step in range(200):
        run.frame(GIB + 4 * MIB * step, boundary="forward_start", phase="forward", num_blocks=300 + step)
        run.end_step(GIB + 4 * MIB * step, 2 * GIB + 4 * MIB * step, num_blocks=300 + step)
    device = run.document()["devices"]["cuda:0"]

    assert device["short"][0].startswith("allocated grows 4.0 MiB a step")
    assert device["growth"]["growth"]["bytes_per_step"] == {"value": 4 * MIB, "how": "derived"}
    assert device["remedies"]["remedy_1"]["note"].startswith("find what is kept from step to step")
    assert device["remedies"]["not_1"]["note"].startswith("a smaller batch")


def floors(sizes: list[int], saved: tuple[int, ...] = ()) -> str:
    """What is said of the growth of steps that begin with so much allocated, some after a checkpoint was saved."""
    run = Watched()
    for step, size in enumerate(sizes):
        run.step = step
        if step in saved:
            run.frame(size, phase="checkpoint")
            run.now_ns += 900_000_000
            run.frame(size, phase="checkpoint", phase_since_ns=run.now_ns - 900_000_000)
        run.frame(size, boundary="forward_start", phase="forward", num_blocks=300 + (size - sizes[0]) // MIB)
    text: str = run.document()["devices"]["cuda:0"]["growth"]["growth"]["note"]
    return text


def test_a_workspace_that_stays_is_no_leak() -> None:
    """GIVEN a rise once, as of a workspace of cuBLAS, THEN that it stood still; of few steps no more than that."""
    rise = [40 * MIB] * 3 + [40 * MIB + 8_519_680] * 200

    assert floors(rise) == (
        "as steps began, it rose and then stood still, from step 1 to 203: "
        "a warm-up or a workspace that stays, not a leak"
    )
    assert floors(rise[:30]) == (
        "as steps began, it rose and then stood still, from step 1 to 30; 130 steps tell a leak from a warm-up"
    )


def test_stairs_are_told_with_what_makes_them() -> None:
    """GIVEN a copy kept at each checkpoint, THEN stairs of so many steps, with each checkpoint."""
    sizes = [GIB + 256 * MIB * (step // 5) for step in range(40)]
    saved = tuple(range(5, 40, 5))

    assert floors(sizes).startswith("as steps began, it rises by stairs, every 5 steps: that keeps memory")
    assert "every 5 steps, with each checkpoint: that keeps memory" in floors(sizes, saved)


def test_a_log_that_is_cleared_is_a_saw_tooth() -> None:
    """GIVEN what grows through an epoch and is given back, THEN its rate and its period."""
    text = floors([GIB + 8 * MIB * (step % 50) for step in range(170)])

    assert text.startswith("as steps began, it grows by 8.0 MiB a step and is given back every 50 steps")


def test_forecasts_have_their_scores() -> None:
    """GIVEN scored forecasts, THEN each kind once, the newest: exact, nearly, off, and against a lower bound."""
    run = trained()
    for predicted, actual, exact, text in (
        (100, 100, 1, "first step, after the first forward"),
        (GIB + 512, GIB, 1, "first step, after the first backward"),
        (3 * GIB, 2 * GIB, 0, "later steps, after the first forward"),
        (GIB, 2 * GIB, 1, "peak by step 10, from whole steps"),
        (2 * GIB, 2 * GIB, 1, "peak by step 20, from whole steps"),
        (GIB, 2 * GIB, 1, "peak allocated, step 6 done again"),
    ):
        figures = {"predicted_bytes": predicted, "actual_bytes": actual, "actual_exact": exact}
        run.now_ns += 1
        run.session.apply(Event("forecast_scored", run.now_ns, 0, "", "cuda:0", figures, text), 0)
    rows = run.document()["devices"]["cuda:0"]["forecasts"]

    assert {key: row["note"] for key, row in rows.items() if key != "standing"} == {
        "first_step_after_forward": "to the byte, by the first forward",
        "first_step_after_backward": "512 B too much, by the first backward",
        "later_steps_after_forward": "+50.0 % at most, by the first forward",
        "recorded_allocated": "-50.0 %, by step 6 done again",
        "whole_steps": "to the byte, by whole steps",
    }
    assert rows["later_steps_after_forward"]["actual_bytes"]["how"] == "lower_bound"


@pytest.mark.parametrize("run", [trained(), failed("forward", allocated=20 * GIB), Watched()], ids=str)
def test_markdown_renders_as_tables(run: Watched) -> None:
    """GIVEN any run, THEN a table a section, each row with as many cells as its heading."""
    if run.session.frame is None:
        run.frame(None)
    report = run.report()
    tokens = MarkdownIt("commonmark").enable("table").parse("\n".join(markdown.lines(report)))

    sections = 1 + sum(len(device.sections) for device in report.devices)
    assert sum(token.type == "table_open" for token in tokens) == sections
    rows = sum(len(section.rows) for device in report.devices for section in device.sections) + len(report.model.rows)
    assert sum(token.type == "tr_open" for token in tokens) == rows + sections
    text = "".join(token.content for token in tokens if token.type == "inline")
    assert all(line in text.replace("\\", "") for device in report.devices for line in device.short)


def test_the_page_is_80_columns_wide() -> None:
    """And says what is not marked."""
    text = trained().text()

    assert all(len(line) <= plain.WIDTH for line in text.splitlines())
    assert "Figures are measured where they are not marked" in text
