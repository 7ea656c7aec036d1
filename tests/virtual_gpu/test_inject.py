"""Getting into a training that has initialised its device before: the allocator's figures, from the next tick on."""

from __future__ import annotations

import pathlib

from memtui.wire.frames import Frame, Model
from tests.support import virtual_gpu
from tests.support.targets import TRAINING, Viewer, attached, target, unload

ON_DEVICE = (
    TRAINING.replace("torch.nn.Linear(64, 64))\n", "torch.nn.Linear(64, 64)).to('cuda')\n")
    .replace("model(torch.randn(8, 64))", "model(torch.randn(8, 64, device='cuda'))")
    .replace("torch.manual_seed(0)", "torch.cuda.init()")
)


def test_a_training_on_a_device(tmp_path: pathlib.Path) -> None:
    environment = virtual_gpu.virtual_environment(memory="4GiB")
    with target(ON_DEVICE, tmp_path, environment=environment) as process:
        for _ in range(3):
            outcome = attached(process.pid)
            assert outcome.socket is not None
            with Viewer(outcome.socket) as viewer:
                assert viewer.until(Model).roots == ("Sequential",)
                frame = viewer.until(Frame, lambda frame: frame.step > 20 and frame.devices[0].classification)
                device = frame.devices[0]
                assert device.device == "cuda:0"
                figures = device.categories()
                parameters = 2 * (64 * 64 * 4 + 512)
                assert figures["parameters"] == parameters
                assert figures["optimizer_state"] >= 2 * parameters
                assert sum(figures.values()) == device.allocated_bytes
                phases = {viewer.until(Frame, lambda frame: frame.boundary).boundary for _ in range(12)}
                assert {"backward_start", "optimizer_start"} <= phases
            unload(outcome.socket)
        assert process.poll() is None
