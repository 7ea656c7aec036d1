"""A recorded step against what torch says of the same step in the process, byte for byte."""

from __future__ import annotations

import json
import pathlib
import subprocess
from itertools import accumulate
from typing import Any

import pytest

from memtui.wire.frames import Event, RecordedStep
from tests.support import programs

pytestmark = pytest.mark.virtual_gpu

PROGRAM = programs.PROGRAMS / "recorded.py"
ROOT = PROGRAM.parents[2]
STEPS = 60


class Watched:
    """What a program printed, and what a viewer was told that asked for `wanted` steps to be recorded."""

    def __init__(
        self,
        runtime: pathlib.Path,
        kind: str,
        *,
        wanted: int = 1,
        direct: bool = False,
        devices: int = 1,
        settings: str = "",
    ):
        environment = programs.virtual_environment_with_agent(runtime, memory="24GiB", count=devices)
        environment["PYTHONPATH"] += f":{ROOT}"
        if settings:
            environment["PYTORCH_CUDA_ALLOC_CONF"] = settings
        self.recorded: list[RecordedStep] = []
        self.events: list[Event] = []
        with programs.started(
            str(PROGRAM),
            kind,
            str(STEPS),
            environment=environment,
            direct=direct,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            first = [process.stdout.readline() for _ in range(4)]
            with programs.AgentConnection(runtime, process.pid) as viewer:
                asked = 0
                for message in viewer.messages():
                    if asked * devices == len(self.recorded) < wanted * devices:
                        viewer.ask("record")
                        asked += 1
                    if isinstance(message, RecordedStep):
                        self.recorded.append(message)
                    elif isinstance(message, Event):
                        self.events.append(message)
            rest, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
            assert b"Error" not in errors
        lines = [json.loads(line) for line in [*first, *rest.splitlines()]]
        self.steps: list[dict[str, Any]] = lines[:-1]
        self.last: dict[str, Any] = lines[-1]


def unwatched(kind: str) -> list[dict[str, Any]]:
    """What the program prints without an agent."""
    environment = programs.plain_environment() | programs.virtual_gpu.virtual_environment(memory="24GiB")
    environment["PYTHONPATH"] = str(ROOT)
    arguments = programs.command(str(PROGRAM), kind, str(STEPS), direct=False)
    printed = subprocess.run(arguments, env=environment, capture_output=True, timeout=120, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def sums(step: RecordedStep) -> list[int]:
    """Allocated bytes before each event, and after the last."""
    changes = [0] * len(step.event_us)
    for born, died, size, *_ in step.blocks:
        if born >= 0:
            changes[born] += size
        if died >= 0:
            changes[died] -= size
    return list(accumulate([step.before_bytes, *changes]))


def alive(step: RecordedStep, event: int) -> dict[str, int]:
    """Bytes by category before an event."""
    totals: dict[str, int] = {}
    for born, died, size, category, *_ in step.blocks:
        if born < event and (died == -1 or died >= event):
            name = step.categories[category]
            totals[name] = totals.get(name, 0) + size
    return totals


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("mlp", ""),
        ("fused", "max_split_size_mb:21"),
        ("sgd", ""),
        ("gpt", ""),
        ("gpt", "expandable_segments:True"),
        ("gpt", "roundup_power2_divisions:4"),
        ("accumulated", ""),
    ],
)
def test_every_figure_is_torchs_own(tmp_path: pathlib.Path, kind: str, settings: str) -> None:
    """Allocated bytes at each boundary, categories in sum and by owner, and the peak where torch's rose."""
    watched = Watched(tmp_path, kind, settings=settings)
    (step,) = watched.recorded
    said = watched.steps[step.step]
    assert said["step"] == step.step
    assert (step.device, step.lost_events, step.notices) == ("cuda:0", 0, ())
    allocated = sums(step)
    before = watched.steps[step.step - 1]["said"][-1][1]
    assert allocated[0] == step.before_bytes == before
    marks = [mark for mark in step.marks if mark.phase in ("forward", "backward", "optimizer")]
    # torch makes the loss's own gradient, one number, before it enters the engine: just before backward begins.
    expected = [(name, size + 512 * (name == "backward")) for name, size in said["said"][:-1]]
    assert [(mark.phase, allocated[mark.event]) for mark in marks] == expected
    assert allocated[-1] == said["said"][-1][1]
    for event in range(0, len(allocated), 7):
        assert sum(alive(step, event).values()) == allocated[event]

    at_end = alive(step, len(allocated) - 1)
    assert {name: at_end.get(name, 0) for name in said["own"]} == said["own"]
    assert at_end.get("unattributed", 0) <= 0.01 * allocated[-1]
    if watched.steps[step.step - 1]["peak"] < said["peak"]:
        assert step.counted_peak_bytes == max(allocated) == said["peak"]
    else:
        assert step.counted_peak_bytes is None
        assert max(allocated) <= said["peak"]
    # Each step of these has a longer batch than the one before, so the peak rises in every one of them.
    assert (step.counted_peak_bytes is not None) == (kind in ("fused", "gpt"))
    (event,) = [event for event in watched.events if event.name == "recorded"]
    assert event.figures == {
        "events": len(step.event_us),
        "cost_ns": step.cost_ns,
        "peak_bytes": max(allocated),
    }


@pytest.mark.parametrize("kind", ["scaled", "closure", "inside"])
def test_every_boundary_is_where_the_program_says(tmp_path: pathlib.Path, kind: str) -> None:
    """Who calls the optimizer's step does not matter: a GradScaler, itself the caller of the model, backward's hooks.

    A step that ends with its backward is known to have ended only as the next forward begins.
    """
    watched = Watched(tmp_path, kind)
    (step,) = watched.recorded
    said = watched.steps[step.step]["said"]
    assert (step.lost_events, step.notices) == (0, ())
    allocated = sums(step)
    # The gradient of the loss is there before torch enters the engine, and goes once that is left.
    of_loss = [phase == "backward" or before == "backward" for (phase, _), (before, _) in zip(said, [("", 0), *said])]
    expected = [(phase, size + 512 * more) for (phase, size), more in zip(said, of_loss)]
    if kind == "inside":
        assert allocated[-1] == watched.steps[step.step + 1]["said"][0][1]
    else:
        assert step.before_bytes == watched.steps[step.step - 1]["said"][-1][1]
        assert expected.pop() == ("between", allocated[-1])
    marks = [(mark.phase, allocated[mark.event]) for mark in step.marks]
    if marks[0] != expected[0]:
        assert marks.pop(0) == ("between", step.before_bytes)
    assert marks == expected
    wanted = {"scaled": 1, "closure": 3, "inside": 1}[kind]
    assert [phase for phase, _ in marks].count("backward") == wanted
    born = {step.categories[block[3]] for block in step.blocks if block[0] > step.marks[-1].event - 1}
    assert "inputs" not in born or kind == "inside"  # whose next batch is made in it


def test_names_sites_modules_and_times(tmp_path: pathlib.Path) -> None:
    """Every block has what can be known of it, and events are within the step and in order."""
    watched = Watched(tmp_path, "gpt")
    (step,) = watched.recorded
    named = {step.names[block[4]]: step.categories[block[3]] for block in step.blocks if block[4] >= 0}
    assert named["blocks.1.feed.0.weight"] == "parameters"
    assert named["blocks.1.feed.0.weight exp_avg_sq"] == "optimizer_state"
    assert named["tokens.weight (gradient)"] == "gradients"

    assert list(step.event_us) == sorted(step.event_us)
    assert 0 <= step.event_us[0] <= step.event_us[-1] <= step.duration_ns / 1000
    assert 0 < step.cost_ns < step.duration_ns + 1e9
    phases = {mark.phase: mark.event for mark in step.marks}
    activations = [block for block in step.blocks if step.categories[block[3]] == "activations"]
    assert activations
    for born, _, _, _, _, site, module in activations:
        assert phases["forward"] <= born < phases["backward"]
        first = step.sites[site].splitlines()[0]
        assert first.startswith((f"{PROGRAM}:", f"{ROOT}/memtui/examples/gpt.py:"))
        assert (module >= 0) == ("gpt.py" in first)
    in_backward = [block for block in step.blocks if phases["backward"] <= block[0] < phases["between"]]
    assert in_backward
    assert {block[5] for block in in_backward} == {-1}  # backward runs on a thread that has no Python stack
    modules = {step.modules[block[6]] for block in activations}
    assert modules >= {"blocks.0.norm_attention", "blocks.1.qkv", "blocks.2.feed.1", "norm", "head"}


def test_every_device_has_its_own(tmp_path: pathlib.Path) -> None:
    watched = Watched(tmp_path, "split", devices=2)
    steps = watched.recorded
    assert [step.device for step in steps] == ["cuda:0", "cuda:1"]
    assert steps[0].step == steps[1].step
    assert [sums(step)[-1] for step in steps] == watched.steps[steps[0].step]["end"]
    for step, own, other in ((steps[0], "first", "second"), (steps[1], "second", "first")):
        assert f"{own}.weight (gradient)" in step.names
        assert not any(name.startswith(other) for name in step.names)
        assert not step.notices


def test_modules_of_one_class_within_each_other(tmp_path: pathlib.Path) -> None:
    """What is allocated after a child has returned is its parent's, though the child was called later."""
    (step,) = Watched(tmp_path, "nested").recorded
    forward = next(mark.event for mark in step.marks if mark.phase == "forward")
    activations = sorted(block for block in step.blocks if block[0] >= forward and block[6] >= 0)
    order = [step.modules[block[6]] for block in activations if step.categories[block[3]] == "activations"]
    down = ["linear", "inner.linear", "inner.inner.linear", "inner.inner.inner.linear"]
    assert [name for name in order if not name.endswith("linear")] == ["inner.inner.inner", "inner.inner", "inner", ""]
    assert set(order) - {"inner.inner.inner", "inner.inner", "inner", ""} <= set(down)


@pytest.mark.parametrize("kind", ["mlp", "gpt", "compiled"])
def test_the_training_is_untouched(tmp_path: pathlib.Path, kind: str) -> None:
    """Two steps recorded in mid-run: losses, random states, statistics and every module are as without."""
    alone = unwatched(kind)
    watched = Watched(tmp_path, kind, wanted=2)
    first, second = watched.recorded
    assert 0 < first.step < second.step
    assert [*watched.steps, watched.last] == alone
    assert watched.last["hooks"]
    assert not watched.last["recording"]
    said = watched.steps[second.step]
    at_end = alive(second, len(second.event_us))
    assert {name: at_end.get(name, 0) for name in said["own"]} == said["own"]
    assert bool(second.notices) == (kind == "compiled")  # modules are not told apart


def test_a_program_that_records_for_itself_is_left_alone(tmp_path: pathlib.Path) -> None:
    """It is refused, with the reason, and the program's history is as without an agent."""
    alone = unwatched("always+mlp")
    watched = Watched(tmp_path, "always+mlp")
    assert not watched.recorded
    (event,) = [event for event in watched.events if event.name == "record_refused"]
    assert "records a memory history of its own" in event.text
    assert watched.last == alone[-1]
    assert watched.last["recording"]


def test_a_program_that_begins_to_record_meanwhile_has_its_way(tmp_path: pathlib.Path) -> None:
    """Ours goes at once, without a trace in the program's, and the program's stays."""
    watched = Watched(tmp_path, "meanwhile+mlp")
    assert watched.last["begun"]
    assert not watched.recorded
    assert watched.last["entries"] > 100
    assert watched.last["older"] == 0
    assert watched.last["recording"]
    refused = [event.text for event in watched.events if event.name == "record_refused"]
    assert refused == ["the program began to record a memory history of its own"]


def test_once_by_itself_and_kept_for_later_viewers(tmp_path: pathlib.Path) -> None:
    """A program that was started itself is recorded after its first steps; whoever comes later gets the step."""
    watched = Watched(tmp_path, "mlp", wanted=0, direct=True)
    (step,) = watched.recorded
    assert step.step == 5
    assert [event.name for event in watched.events].count("recorded") == 1
    environment = programs.virtual_environment_with_agent(tmp_path, memory="24GiB")
    environment["PYTHONPATH"] += f":{ROOT}"
    with programs.started(str(PROGRAM), "mlp", "1000", environment=environment, stdout=subprocess.DEVNULL) as process:
        for _ in range(2):
            with programs.AgentConnection(tmp_path, process.pid) as viewer:
                found = viewer.until(lambda message: isinstance(message, RecordedStep))
                assert found.step == 5


def test_a_training_without_a_device_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    environment = programs.virtual_environment_with_agent(tmp_path, count=0)
    arguments = (str(ROOT / "memtui" / "examples" / "mlp.py"), "--batch", "8", "--hold", "0.1", "--steps", "1000")
    with (
        programs.started(*arguments, environment=environment, stdout=subprocess.DEVNULL) as process,
        programs.AgentConnection(tmp_path, process.pid) as viewer,
    ):
        viewer.ask("record")
        refused = viewer.until(lambda message: isinstance(message, Event) and message.name == "record_refused")
        assert "no CUDA device" in refused.text
