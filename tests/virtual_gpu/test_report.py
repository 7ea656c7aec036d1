"""The report of real trainings, held against what each of them counted itself."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from tests.support import programs
from tests.support.virtual_gpu import virtual_environment

ROOT = programs.PROGRAMS.parents[1]
MIB = 1 << 20
pytestmark = pytest.mark.virtual_gpu

#: One model on two devices; prints what each has counted.
TWO = """
import time, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(1024, 4096).cuda(0), nn.Linear(4096, 1024).cuda(1)
    def forward(self, rows):
        return self.second(self.first(rows).to("cuda:1"))
net = Net()
optimizer = torch.optim.AdamW(net.parameters())
rows = torch.randn(512, 1024, device="cuda:0")
for step in range(12):
    net(rows).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.05)
for device in (0, 1):
    print(torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device))
"""
#: Batches that grow until one does not fit; prints the counters' peaks, and what was asked for.
FULL = """
import atexit, time, torch
from torch import nn
net = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(2048, 2048), nn.ReLU())]).cuda()
optimizer = torch.optim.Adam(net.parameters())
atexit.register(lambda: print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True))
for step in range(100):
    rows = torch.randn(2048 + 2048 * step, 2048, device="cuda")
    net(rows).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.05)
"""
#: The demo's model, evaluated after its training under `no_grad` on a batch of eight times the size, and saved.
EVALUATED = """
import time, torch
from torch.nn import functional
from memtui.examples.gpt import GPT
model = GPT(512, 2, 128, 4, 64).cuda()
optimizer = torch.optim.AdamW(model.parameters())
def loss(batch):
    tokens = torch.randint(0, 512, (batch, 64), device="cuda")
    return functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
for step in range(30):
    loss(4).backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
before = torch.cuda.max_memory_allocated()
with torch.no_grad():
    loss(256)
    time.sleep(0.3)
print(before, torch.cuda.max_memory_allocated())
"""


class Reported(NamedTuple):
    """What the program printed, how it exited, the report at its end, and that of its log."""

    lines: list[list[int]]
    status: int
    report: dict[str, Any]
    of_log: dict[str, Any]


def reported(folder: pathlib.Path, *words: str, **profile: object) -> Reported:
    """A training under `memtui run`."""
    folder.chmod(0o700)
    environment = programs.plain_environment() | virtual_environment(**profile)
    environment |= {"PYTHONPATH": str(ROOT), "MEMTUI_RUNTIME_DIR": str(folder)}
    memtui, log, out = [sys.executable, "-m", "memtui"], str(folder / "run.log"), str(folder / "out.json")
    command = [*memtui, "run", "--headless", "--quiet", "--log", log, "--report", out, "--", sys.executable, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    read = subprocess.run([*memtui, "report", "--json", log], env=environment, capture_output=True, check=True)
    numbers = [[int(word) for word in line.split() if word.isdigit()] for line in done.stdout.splitlines()]
    numbers += [[int(line.split()[1])] for line in done.stderr.splitlines() if line.startswith("peak ")]
    return Reported(numbers, done.returncode, json.loads((folder / "out.json").read_text()), json.loads(read.stdout))


def values(row: dict[str, Any], *names: str) -> list[Any]:
    return [row[name]["value"] for name in names]


BOTH = ("allocated_bytes", "reserved_bytes")


def test_a_perceptron_with_adam(tmp_path: pathlib.Path) -> None:
    """GIVEN the counters that the program printed at each point of its first step, THEN those, to the byte."""
    run = reported(
        tmp_path, "-m", "memtui.examples.mlp", "--steps", "20", "--hold", "0.05", memory="4GiB", context="400MiB"
    )
    created, forward, backward, step, *_, [peak] = run.lines
    found = run.report["devices"]["cuda:0"]
    stages = found["first_step"]

    model = run.report["model"]
    assert model["parameters"]["parameters"]["value"] == 25_175_040
    assert model["dtypes"] == {
        "float32_bytes": {"value": 25_175_040 * 4, "how": "measured"},
        "note": "float32 96.0 MiB",
    }
    inputs = 2048 * 1024 * 4
    assert values(stages["after_creation"], "allocated_bytes")[0] in (created[0], created[0] + inputs)
    # As backward begins, the gradient of the loss is there: 512 bytes.
    assert values(stages["after_forward"], *BOTH) == [forward[0] + 512, forward[1]]
    assert values(stages["after_backward"], *BOTH) == backward
    assert values(stages["after_first_step"], *BOTH) == step
    assert found["step_peak"]["run"]["allocated_peak_bytes"] == {"value": peak, "how": "measured"}
    assert values(found["step_peak"]["highest_step"], "allocated_peak_bytes") == [peak]
    assert values(found["exercised"]["input"], "least_inputs_bytes", "most_inputs_bytes") == [inputs, inputs]
    assert found["exercised"]["first_made"]["note"] == "its first operation, Addmm, made 2,048 x 4,096"
    assert found["forecasts"]["first_step_after_backward"]["note"].startswith("to the byte")
    # A context, as the virtual GPU has it, is all that is outside PyTorch.
    assert found["driver"]["process_bytes"]["value"] - found["driver"]["reserved_bytes"]["value"] == 400 * MIB
    for key in ("first_step", "step_peak", "forecasts", "reserved"):
        assert run.of_log["devices"]["cuda:0"][key] == found[key]


def test_two_devices(tmp_path: pathlib.Path) -> None:
    """GIVEN a model on two devices, THEN a page of each, with what it counted."""
    script = tmp_path / "two.py"
    script.write_text(TWO)
    run = reported(tmp_path, str(script), memory="2GiB", count=2)

    assert run.status == 0
    for device, counted in zip(("cuda:0", "cuda:1"), run.lines):
        peak = run.report["devices"][device]["reserved"]["peak"]
        assert values(peak, *BOTH) == counted
        assert values(run.report["model"]["parameters"], f"{device}_bytes")[0] in (4 * 1024 * 4097, 4 * 4096 * 1025)


def test_a_training_that_runs_out_of_memory(tmp_path: pathlib.Path) -> None:
    """GIVEN batches that grow until one does not fit, THEN the cause, who held the memory, and a lever against that."""
    script = tmp_path / "full.py"
    script.write_text(FULL)
    run = reported(tmp_path, str(script), memory="3GiB")
    found = run.report["devices"]["cuda:0"]

    assert run.status == run.report["exit_status"] == 1
    assert run.report["exception"] == "OutOfMemoryError"
    assert found["short"][0].startswith("out of memory in ")
    assert found["short"][1].startswith("cause: longest batch; this step needs ")
    assert values(found["reserved"]["peak"], *BOTH) == run.lines[-1]
    assert next(iter(found["dominates"])) == "activations_bytes"
    assert found["remedies"]["remedy_1"]["note"].startswith("limit batches to what has fitted before")
    assert found["remedies"]["remedy_2"]["note"].startswith("half the micro-batch")
    assert run.of_log["devices"]["cuda:0"]["short"] == found["short"]


def test_an_evaluation_that_needs_more_than_the_training(tmp_path: pathlib.Path) -> None:
    """GIVEN a peak in an evaluation, THEN it is the whole run's, and no step's."""
    script = tmp_path / "evaluated.py"
    script.write_text(EVALUATED)
    run = reported(tmp_path, str(script), memory="4GiB")
    [before, peak] = run.lines[-1]
    peaks = run.report["devices"]["cuda:0"]["step_peak"]

    assert before < peak
    assert values(peaks["run"], "allocated_peak_bytes") == [peak]
    assert values(peaks["highest_step"], "allocated_peak_bytes")[0] <= before
    evaluation = run.report["devices"]["cuda:0"]["exercised"]["evaluation"]
    assert evaluation["note"].startswith("seen, ")
    assert evaluation["allocated_peak_bytes"]["value"] <= peak
