"""What the agent streams is what torch says in the process, byte for byte."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time

import pytest

from memtui.wire.frames import Event, Frame, Model
from tests.support import programs

MIB = 1024 * 1024
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "memtui" / "examples"
PERSISTENT = ("parameters", "buffers", "gradients", "optimizer_state")

#: Stops at each point until it is told to go on, and says what torch says there.
HELD = """
import sys
import torch
from torch import nn

def point(name):
    print(name, torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), flush=True)
    sys.stdin.readline()

model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
point("model")
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(2048, 1024, device="cuda")
for _ in range(3):
    loss = model(x).pow(2).mean()
    point("forward")
    loss.backward()
    point("backward")
    optimizer.step()
    point("step")
    optimizer.zero_grad()
    point("between")
print("peak", torch.cuda.max_memory_allocated(), flush=True)
sys.stdin.readline()
"""


def held_frames(tmp_path: pathlib.Path) -> tuple[list[tuple[str, int, int, Frame]], int, list[object]]:
    """(point, allocated, reserved, a frame of that moment) for each point, the peak, and all other messages."""
    environment = programs.virtual_environment_with_agent(tmp_path, memory="24GiB")
    points, others = [], []
    with programs.started(
        "-c", HELD, environment=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        viewer = None
        peak = 0
        for line in process.stdout:
            name, *figures = line.split()
            if viewer is None:
                viewer = programs.AgentConnection(tmp_path, process.pid)
                messages = viewer.messages()
            if name == b"peak":
                peak = int(figures[0])
            # Monotonic time is the machine's: a frame of after this moment was sampled while the program waits.
            held_ns = time.monotonic_ns()
            for message in messages:
                if not isinstance(message, Frame):
                    others.append(message)
                    continue
                assert_adds_up(message)
                if message.time_ns > held_ns and message.devices[0].device == "cuda:0":
                    break
            if name != b"peak":
                points.append((name.decode(), int(figures[0]), int(figures[1]), message))
            process.stdin.write(b"\n")
            process.stdin.flush()
        viewer.socket.close()
    return points, peak, others


def assert_adds_up(frame: Frame) -> None:
    for device in frame.devices:
        categories = device.categories()
        if categories is not None:
            assert sum(categories.values()) == device.allocated_bytes
            assert device.classification is not None
            assert sum(device.classification.categories.values()) == device.classification.allocated_bytes


@pytest.mark.virtual_gpu
def test_the_published_points(tmp_path: pathlib.Path) -> None:
    """96.0, 184.2, 216.3, 408.4 and a peak of 504.4 MiB, each as torch has it; nothing unattributed."""
    points, peak, others = held_frames(tmp_path)
    published = {"model": 96.0, "forward": 184.2, "backward": 216.3, "step": 408.4}
    for (name, allocated, reserved, frame), expected in zip(points, published.items()):
        device = frame.devices[0]
        assert (device.allocated_bytes, device.reserved_bytes) == (allocated, reserved)
        assert (name, round(allocated / MIB, 1)) == expected
    for _, allocated, reserved, frame in points[4:]:
        device = frame.devices[0]
        assert (device.allocated_bytes, device.reserved_bytes) == (allocated, reserved)
    first_step = points[3][3].devices[0]
    assert round((first_step.last_step_peak_bytes or 0) / MIB, 1) == 504.4
    assert first_step.last_step_peak_exact
    assert peak == max(point[3].devices[0].allocated_peak_bytes or 0 for point in points)

    parameters = 25_175_040 * 4
    for name, _, _, frame in points[3:]:
        categories = frame.devices[0].categories()
        assert categories is not None
        assert categories["parameters"] == parameters
        if name == "step":
            assert categories["gradients"] == parameters
            # Two moments a parameter, and what the allocator rounds them up by.
            assert 0 <= categories["optimizer_state"] - 2 * parameters <= 12 * 512
        if name in ("step", "between"):
            assert abs(categories.get("unattributed", 0)) <= 0.01 * (frame.devices[0].allocated_bytes or 0)
            assert categories["inputs"] == 2048 * 1024 * 4
        if name == "between":
            assert not categories.get("gradients")
    models = [message for message in others if isinstance(message, Model)]
    assert models[-1].parameters == models[-1].trainable_parameters == 25_175_040
    assert [optimizer.name for optimizer in models[-1].optimizers] == ["Adam"]
    events = {message.name: message for message in others if isinstance(message, Event)}
    assert events["optimizer_state_appeared"].figures["parameter_bytes"] == parameters
    assert events["optimizer_state_appeared"].figures["state_bytes"] - 2 * parameters < 64  # and the step counts


@pytest.mark.virtual_gpu
def test_every_frame_adds_up(tmp_path: pathlib.Path) -> None:
    """A free-running training: at every frame, categories are the allocator's bytes; between steps 1 % is unknown.

    A frame may fall into the very moment in which gradients are being dropped, one after the other.
    """
    environment = programs.virtual_environment_with_agent(tmp_path, memory="24GiB")
    arguments = (str(EXAMPLES / "gpt.py"), "--seconds", "6", "--pace", "0.05", "--batch", "2")
    shares = []
    with (
        programs.started(*arguments, environment=environment, stdout=subprocess.DEVNULL) as process,
        programs.AgentConnection(tmp_path, process.pid) as viewer,
    ):
        for message in viewer.messages():
            if not isinstance(message, Frame):
                continue
            assert_adds_up(message)
            device = message.devices[0]
            categories = device.categories()
            if message.step < 3 or message.phase != "between" or categories is None:
                continue
            shares.append(abs(categories.get("unattributed", 0)) / (device.allocated_bytes or 1))
    assert len(shares) > 10
    dropping = [share for share in shares if share > 0.01]
    assert len(dropping) <= 0.05 * len(shares) + 1
    assert max(shares) < 0.25  # of which the gradients are a quarter


@pytest.mark.virtual_gpu
def test_out_of_memory_is_told(tmp_path: pathlib.Path) -> None:
    """The observer's figures arrive as an event, and the program's exception with the farewell."""
    environment = programs.virtual_environment_with_agent(tmp_path, memory="2GiB")
    code = (
        "import sys, torch; x = torch.ones(8, device='cuda'); sys.stdin.readline(); torch.empty(2**32, device='cuda')"
    )
    with programs.started(
        "-c", code, environment=environment, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        with programs.AgentConnection(tmp_path, process.pid) as viewer:
            viewer.until(lambda message: isinstance(message, Frame) and message.devices[0].device == "cuda:0")
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            event = viewer.until(lambda message: isinstance(message, Event) and message.name == "oom")
            bye = viewer.until(lambda message: type(message).__name__ == "Bye")
        assert process.wait() == 1
    assert event.figures["asked_bytes"] == 4 * 2**32
    assert event.figures["device_total_bytes"] == 2 << 30
    assert bye.exception == "OutOfMemoryError"
    assert "Tried to allocate 16.00 GiB" in bye.text


def test_host_training(tmp_path: pathlib.Path) -> None:
    """Without a GPU: the heap's figures, and tensors by identity."""
    environment = programs.host_environment(tmp_path)
    arguments = (str(EXAMPLES / "mlp.py"), "--steps", "3", "--batch", "64", "--hold", "0.3")
    with (
        programs.started(*arguments, environment=environment, stdout=subprocess.DEVNULL) as process,
        programs.AgentConnection(tmp_path, process.pid) as viewer,
    ):
        frames = [message for message in viewer.messages() if isinstance(message, Frame)]
    found = [frame for frame in frames if frame.boundary == "optimizer_end"]
    assert found
    device = found[-1].devices[0]
    assert device.device == "host"
    assert device.rss_bytes is not None
    if sys.platform == "linux" and device.allocated_bytes is not None:
        categories = device.categories()
        assert categories is not None
        assert categories["parameters"] == categories["gradients"] == 25_175_040 * 4
        assert categories["optimizer_state"] >= 2 * 25_175_040 * 4
