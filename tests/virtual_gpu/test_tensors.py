"""Live tensors as the agent lists them: the program's own names, shapes and blocks, and they add up."""

from __future__ import annotations

import json
import pathlib
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from memtui.wire.frames import Frame, Tensors
from tests.support import programs

pytestmark = pytest.mark.virtual_gpu

PROGRAM = str(programs.PROGRAMS / "tensors.py")
ROOT = str(pathlib.Path(__file__).resolve().parents[2])


def environment(folder: pathlib.Path) -> dict[str, str]:
    found = programs.virtual_environment_with_agent(folder, memory="24GiB")
    return {**found, "PYTHONPATH": f"{found['PYTHONPATH']}:{ROOT}"}


@contextmanager
def training(kind: str, folder: pathlib.Path) -> Iterator[tuple[Any, programs.AgentConnection, Any]]:
    """The process, a viewer, and what the program has said of its tensors; it goes on with its steps."""
    with programs.started(
        PROGRAM, kind, environment=environment(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        said = json.loads(process.stdout.readline())
        with programs.AgentConnection(folder, process.pid, history=False) as viewer:
            yield process, viewer, said


def ask(viewer: programs.AgentConnection) -> Tensors:
    viewer.ask("tensors")
    found = viewer.until(lambda message: isinstance(message, Tensors))
    assert isinstance(found, Tensors)
    assert sum(row.size_bytes for row in found.tensors) + found.others_bytes == found.allocated_bytes
    sizes = [row.size_bytes for row in found.tensors]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) <= 200
    return found


def named(found: Tensors) -> dict[str, list[Any]]:
    rows = [row for row in found.tensors if row.name]
    assert len({row.name for row in rows}) == len(rows)
    return {row.name: [list(row.shape), row.dtype, row.size_bytes] for row in rows}


@pytest.mark.parametrize("kind", ["mlp", "gpt", "lora", "two"])
def test_names_shapes_and_bytes_are_the_programs_own(kind: str, tmp_path: pathlib.Path) -> None:
    with training(kind, tmp_path) as (_, viewer, (expected, gradients, points)):
        found = ask(viewer)
    listed = named(found)
    present = gradients if found.phase in ("optimizer", "between") else {}
    if kind == "two":  # the second model's step begins with the first one's gradients gone
        present = {name: listed[name] for name in listed.keys() & gradients.keys()}
        assert all(gradients[name] == row for name, row in present.items())
    assert listed == {**expected, **present}
    assert found.others_count == 0
    # torch has made the gradient of the loss, one block of the smallest size, when backward begins.
    begun = 512 if found.phase == "backward" else 0
    assert found.allocated_bytes - begun in points[found.phase]
    categories = {row.name: row.category for row in found.tensors if row.name}
    for name, category in categories.items():
        state = " exp_avg" in name
        wanted = "gradients" if "(gradient)" in name else "optimizer_state" if state else "parameters"
        assert category == ("buffers" if name == "scale" else wanted)
    activations = [row for row in found.tensors if row.category == "activations"]
    if found.phase == "backward":
        assert activations
        assert all((row.phase, row.name) == ("forward", "") for row in activations)


def test_shared_memory_is_listed_once_by_the_name_that_counts_most(tmp_path: pathlib.Path) -> None:
    with training("tied", tmp_path) as (_, viewer, (expected, _gradients, _points)):
        found = ask(viewer)
    listed = named(found)
    assert listed["inner.weight + 1 more"] == expected["inner.weight"]  # and the view into it
    assert not {"outer.weight", "part", "inner.weight"} & listed.keys()
    rest = {name: row for name, row in expected.items() if name not in ("inner.weight", "part")}
    assert {name: row for name, row in listed.items() if "gradient" not in name and "more" not in name} == rest


def test_tagged_tensors_and_no_tensor_is_kept(tmp_path: pathlib.Path) -> None:
    with training("tagged", tmp_path) as (process, viewer, (expected, _gradients, _points)):
        found = ask(viewer)
        frame = viewer.until(lambda message: isinstance(message, Frame) and message.devices[0].classification)
        process.stdin.close()
        freed, gone = json.loads(process.stdout.readline())
    listed = named(found)
    for name in ("cache.keys.0", "cache.values.0", "batch", "0.weight"):
        assert listed[name] == expected[name]
    assert "not this name" not in listed
    tagged = {row.name: row.category for row in found.tensors if row.name.startswith(("cache", "batch"))}
    assert set(tagged.values()) == {"inputs"}
    # The bar counts them in the same category, and it is known how much of that has a name.
    classification = frame.devices[0].classification
    assert classification.categories["inputs"] >= 5 << 20
    assert classification.tagged == {"inputs": sum(expected[name][2] for name in tagged)}
    assert freed == 5 << 20
    assert gone == [True, True, True]


def test_categories_are_those_of_the_bar(tmp_path: pathlib.Path) -> None:
    """What the list says of one boundary, and the frame of that same boundary."""
    with training("mlp", tmp_path) as (_, viewer, _said):
        found = ask(viewer)
        # Answers are sent before frames that wait.
        frame = viewer.until(lambda message: isinstance(message, Frame) and message.time_ns >= found.time_ns)
    assert frame.time_ns == found.time_ns
    classification = frame.devices[0].classification
    assert classification is not None
    sums: dict[str, int] = {}
    for row in found.tensors:
        sums[row.category] = sums.get(row.category, 0) + row.size_bytes
    assert sums == classification.categories


def run_fixed(base: dict[str, str], folder: pathlib.Path, steps: int) -> tuple[bytes, int]:
    """The program's output, and how many answers a viewer got that asks all the time."""
    answers = 0
    with programs.started(PROGRAM, "fixed", str(steps), environment=base, stdout=subprocess.PIPE) as process:
        if "MEMTUI_RUNTIME_DIR" in base:
            with programs.AgentConnection(folder, process.pid, history=False) as viewer:
                viewer.ask("tensors")
                output: list[bytes] = []
                reader = threading.Thread(target=lambda: output.append(process.stdout.read()))
                reader.start()
                for message in viewer.messages():
                    if isinstance(message, Tensors):
                        answers += 1
                        viewer.ask("tensors")
                reader.join()
            return output[0], answers
        return process.stdout.read(), answers


@pytest.mark.parametrize("gpu", [True, False])
def test_a_training_that_is_asked_all_the_time_is_untouched(gpu: bool, tmp_path: pathlib.Path) -> None:
    """Losses bit for bit; on the GPU the allocator's statistics too, once the model is gone."""
    observed = environment(tmp_path)
    if not gpu:
        observed["CUDA_VISIBLE_DEVICES"] = ""
    agent_only = {"MEMTUI_RUNTIME_DIR": "", "PYTHONPATH": ROOT}
    plain = {key: value for key, value in {**observed, **agent_only}.items() if value or key == "CUDA_VISIBLE_DEVICES"}
    without, _ = run_fixed(plain, tmp_path, 150)
    with_requests, answers = run_fixed(observed, tmp_path, 150)
    assert with_requests == without
    assert answers >= 2


def test_on_the_host_named_tensors_and_the_rest(tmp_path: pathlib.Path) -> None:
    found_environment = {**environment(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    with (
        programs.started(PROGRAM, "fixed", "400", environment=found_environment, stdout=subprocess.DEVNULL) as process,
        programs.AgentConnection(tmp_path, process.pid, history=False) as viewer,
    ):
        viewer.until(lambda message: isinstance(message, Frame) and message.step > 3)
        found = ask(viewer)
    assert found.device == "host"
    rows = {row.name: row for row in found.tensors}
    assert (rows["2.weight"].shape, rows["2.weight"].size_bytes) == ((256, 256), 256 * 256 * 4)
    assert rows["2.weight exp_avg"].category == "optimizer_state"
    assert [row for row in found.tensors if row.category == "unattributed"]
