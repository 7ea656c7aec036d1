"""Buckets of DDP and parameters that FSDP has gathered: a tenant of their own in every list."""

from __future__ import annotations

import pathlib
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from memtui.wire.frames import Frame, RecordedStep, Tensors
from tests.support import programs

pytestmark = pytest.mark.virtual_gpu

PROGRAM = str(programs.PROGRAMS / "communicating.py")
#: Blocks are rounded up, a few of them small.
ROUNDING = 32 * 512


@contextmanager
def training(kind: str, folder: pathlib.Path) -> Iterator[tuple[programs.AgentConnection, int]]:
    """A viewer of the training, and the bytes of its parameters."""
    if kind in ("fsdp", "flat"):
        pytest.importorskip("torch.distributed.fsdp", reason="no FSDP")
        from torch.distributed import fsdp

        if kind == "fsdp" and not hasattr(fsdp, "fully_shard"):
            pytest.skip("no FSDP2 in this torch")
    environment = programs.virtual_environment_with_agent(folder, memory="8GiB")
    arguments = [kind, str(folder / "meeting")] if kind == "flat" else [kind]
    with programs.started(
        PROGRAM, *arguments, environment=environment, direct=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        size = int(process.stdout.readline())
        with programs.AgentConnection(folder, process.pid, history=False) as viewer:
            # Buckets are known for what they are at the end of a step that is looked at.
            viewer.until(lambda message: isinstance(message, Frame) and communication(message))
            yield viewer, size


def communication(frame: Frame) -> int:
    found = frame.devices[0].classification
    return 0 if found is None else found.categories.get("communication", 0)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_live_tensors(kind: str, tmp_path: pathlib.Path) -> None:
    """GIVEN a step's boundary, THEN buckets are listed as such, and what is gathered by its parameter's name."""
    with training(kind, tmp_path) as (viewer, size):
        found = None
        while found is None or "communication" not in {row.category for row in found.tensors}:
            viewer.ask("tensors")
            found = viewer.until(lambda message: isinstance(message, Tensors))

    rows = [row for row in found.tensors if row.category == "communication"]
    assert size <= sum(row.size_bytes for row in rows) <= size + ROUNDING
    assert size <= sum(row.size_bytes for row in found.tensors if row.category == "parameters") <= size + ROUNDING
    names = {row.name for row in found.tensors}
    if kind == "fsdp":
        assert {row.name for row in rows} == {
            f"{name} (gathered)" for name in ("0.weight", "0.bias", "2.weight", "2.bias")
        }
        assert {"0.weight", "0.weight exp_avg"} <= names
    else:
        assert {"module.0.weight", "module.0.weight exp_avg"} <= names


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_recorded_step(kind: str, tmp_path: pathlib.Path) -> None:
    """GIVEN a recorded step, THEN at its peak there are as many bytes of it as the parameters have, and named."""
    with training(kind, tmp_path) as (viewer, size):
        viewer.ask("record")
        step = viewer.until(lambda message: isinstance(message, RecordedStep))

    held: Counter[str] = Counter()
    names = set()
    for born, _died, size_bytes, category, name, _site, _module in step.blocks:
        if step.categories[category] == "communication" and (name >= 0 or born < 0):
            held["communication"] += size_bytes
            names.add(step.names[name])
    assert size <= held["communication"] <= size + ROUNDING
    if kind == "fsdp":
        assert {"0.weight (gathered)", "2.weight (gathered)"} <= names
    else:
        assert names == {"DDP bucket"}


def test_rebuilt_buckets_are_known_as_soon_as_they_are_told(tmp_path: pathlib.Path) -> None:
    """GIVEN a DDP whose third forward is looked at, which logs them, THEN that step's first look already knows them."""
    environment = programs.virtual_environment_with_agent(tmp_path, memory="8GiB")
    with programs.started(
        PROGRAM, "slow", environment=environment, direct=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        size = int(process.stdout.readline())
        with programs.AgentConnection(tmp_path, process.pid) as viewer:
            frames = []
            for message in viewer.messages():
                if isinstance(message, Frame) and message.devices[0].device == "cuda:0":
                    frames.append(message)
                    if message.step == 4:
                        break
    looked = {
        (frame.step, frame.boundary): communication(frame)
        for frame in frames
        if frame.boundary and frame.devices[0].classification and not frame.devices[0].classification.age_ns
    }
    assert size <= looked[2, "backward_start"] <= size + ROUNDING
    assert size <= looked[2, "optimizer_start"] <= size + ROUNDING


def test_a_flat_parameter_that_is_gathered(tmp_path: pathlib.Path) -> None:
    """GIVEN FSDP's first generation on two ranks, THEN what is gathered is told apart from this rank's half of it."""
    with training("flat", tmp_path) as (viewer, size):
        found = None
        while found is None or "communication" not in {row.category for row in found.tensors}:
            viewer.ask("tensors")
            found = viewer.until(lambda message: isinstance(message, Tensors))
        frame = viewer.until(
            lambda message: (
                isinstance(message, Frame)
                and message.boundary == "backward_start"
                and message.devices[0].classification is not None
                and not message.devices[0].classification.age_ns
            )
        )
        viewer.ask("record")
        step = viewer.until(lambda message: isinstance(message, RecordedStep))

    (row,) = [row for row in found.tensors if row.category == "communication"]
    assert size <= row.size_bytes <= size + ROUNDING
    assert row.name.startswith("_fsdp_wrapped_module._flat_param (gathered)")
    parameters = sum(row.size_bytes for row in found.tensors if row.category == "parameters")
    assert size / 2 <= parameters <= size / 2 + ROUNDING
    categories = frame.devices[0].classification.categories
    assert (categories["communication"], categories["parameters"]) == (row.size_bytes, parameters)
    names = {
        step.names[block[4]] for block in step.blocks if block[4] >= 0 and step.categories[block[3]] == "communication"
    }
    assert any(name.startswith("_fsdp_wrapped_module._flat_param (gathered)") for name in names)
