"""The pools of CUDA graphs and MemPools: what is live in them, and what is free but nobody else's."""

from __future__ import annotations

import json
import pathlib
import subprocess
from typing import Any

import pytest

from memtui.wire.frames import DeviceFrame, Frame
from tests.support import programs
from tests.virtual_gpu.conftest import RunChild

pytestmark = pytest.mark.virtual_gpu

PROGRAM = str(programs.PROGRAMS / "pools.py")
#: Of four layers of 512: each weight is one MiB, each bias takes 2 KiB.
PARAMETERS = 4 * ((1 << 20) + 2048)
OUTPUT = 256 * 512 * 4
KEPT = 12 << 20


def looked_at(kind: str, folder: pathlib.Path) -> tuple[dict[str, int], dict[str, DeviceFrame]]:
    """What the program says, and what a viewer gets at each boundary of one later step."""
    environment = programs.virtual_environment_with_agent(folder, memory="24GiB")
    with programs.started(
        PROGRAM, kind, environment=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        said: dict[str, int] = json.loads(process.stdout.readline())
        with programs.AgentConnection(folder, process.pid, history=False) as viewer:
            viewer.until(looked_at_end)  # only now the agent knows what outlives a step
            frames: dict[str, DeviceFrame] = {}
            for message in viewer.messages():
                if isinstance(message, Frame) and message.boundary and fresh(message):
                    frames[message.boundary] = message.devices[0]
                    if message.boundary == "optimizer_end" and "forward_start" in frames and len(frames) >= 4:
                        return said, frames
    raise AssertionError("the program has ended")


def fresh(message: Frame) -> bool:
    """Its categories and its blocks are of this very instant."""
    device = message.devices[0] if message.devices else None
    if device is None or device.classification is None or device.blocks is None:
        return False
    return device.classification.age_ns == device.blocks.age_ns == 0


def looked_at_end(message: Any) -> bool:
    return isinstance(message, Frame) and message.boundary == "optimizer_end" and fresh(message)


def categories(frame: DeviceFrame) -> dict[str, int]:
    assert frame.classification is not None
    found = frame.classification.categories
    assert sum(found.values()) == frame.classification.allocated_bytes == frame.allocated_bytes
    return found


def test_what_graphs_hold_is_theirs_and_gradients_in_it_are_gradients(tmp_path: pathlib.Path) -> None:
    """Between steps no parameter has a gradient, but the graph still has its memory: these are not inputs."""
    said, frames = looked_at("graphs", tmp_path)
    begun, stepping = categories(frames["forward_start"]), categories(frames["optimizer_start"])
    # A graph captures a workspace of its own, in its pool.
    held = begun["private_pools"] + begun["workspaces"] - said["workspaces"]
    # The graph's output is an activation where the agent has looked while it was captured, for then its birth is known.
    assert said["live"] - held in (0, OUTPUT)
    assert begun["private_pools"] in (PARAMETERS, PARAMETERS + OUTPUT)
    assert "gradients" not in begun
    assert stepping["gradients"] == PARAMETERS
    assert stepping.get("private_pools", 0) == begun["private_pools"] - PARAMETERS
    blocks = frames["forward_start"].blocks
    assert blocks is not None
    assert blocks.private_pool_idle_bytes == said["free"] > 0


def test_activations_in_a_pool_of_the_programs_own_are_activations(tmp_path: pathlib.Path, run_child: RunChild) -> None:
    environment = programs.virtual_environment_with_agent(tmp_path, memory="24GiB")
    if not run_child('import torch; print(str(hasattr(torch.cuda, "MemPool")).lower())', environment):
        pytest.skip("this torch has no MemPool")
    said, frames = looked_at("pool", tmp_path)
    begun, lost = categories(frames["forward_start"]), categories(frames["backward_start"])
    assert begun["private_pools"] == lost["private_pools"] == KEPT
    # cuBLAS makes the forward's workspace in whichever pool is in use.
    assert begun["private_pools"] + begun["workspaces"] == said["live"] + said["workspaces"]
    assert lost["activations"] >= said["grown"] > 0
    blocks = frames["forward_start"].blocks
    assert blocks is not None
    assert blocks.private_pool_idle_bytes == said["free"] > 0
