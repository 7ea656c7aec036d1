"""What is told of an out-of-memory error: the phase and the step that it came in, also where steps are only noted."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from memtui.wire.frames import Event
from tests.support import programs

pytestmark = pytest.mark.virtual_gpu

STEPS = 400
#: Quick steps, of which most are not read; the last one asks for too much at the place that is named.
PROGRAM = f"""
import sys, torch
where, armed = sys.argv[1], False

def exhaust(place):
    if armed and place == where:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")

class Inside(torch.autograd.Function):
    @staticmethod
    def forward(context, rows):
        exhaust("forward")
        return rows.clone()

    @staticmethod
    def backward(context, gradient):
        exhaust("backward")
        return gradient

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, rows):
        return Inside.apply(self.layer(rows))

class Optimizer(torch.optim.SGD):
    def step(self):
        super().step()
        exhaust("optimizer")

model = Model().cuda()
optimizer = Optimizer(model.parameters(), 0.1)
rows = torch.randn(8, 64, device="cuda")
for step in range({STEPS} + 1):
    armed = step == {STEPS}
    if armed and where == "evaluation":
        with torch.no_grad():
            where = "forward"
            model(rows)
    model(rows).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    exhaust("between")
"""


@pytest.mark.parametrize("where", ["forward", "backward", "optimizer", "between", "evaluation"])
def test_the_phase_and_the_step_of_the_error(tmp_path: pathlib.Path, where: str) -> None:
    environment = programs.virtual_environment_with_agent(tmp_path, memory="2GiB")
    with programs.started("-c", PROGRAM, where, environment=environment, stderr=subprocess.DEVNULL) as process:
        with programs.AgentConnection(tmp_path, process.pid) as viewer:
            event = viewer.until(lambda message: isinstance(message, Event) and message.name == "oom")
        assert process.wait(30) == 1
    assert event.step == STEPS + (where == "between")
    # Of what lies outside of all passes nothing on the stack says so, where quick steps are not noted one by one.
    assert event.phase in ({where, ""} if where == "between" else {where})
