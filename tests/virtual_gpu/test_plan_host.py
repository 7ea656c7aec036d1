"""`memtui plan` of programs that take the host's memory: a model that is built there, and what cannot be left out."""

from __future__ import annotations

import pathlib

from tests.support.planning import FITS, UNKNOWN, plan, write_script

#: 64 MiB each, by torch.nn's own initialisation; what the process took is told by a file that stays.
_BUILT_ON_THE_HOST = """
import os, pathlib, time, torch
def resident(name):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(name))
before = resident("VmRSS")
model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, bias=False) for _ in range(LAYERS)])
if os.environ.get("KEPT"):
    assert all(layer.weight.abs().min(dim=0).values.max() > 0 for layer in model)
    torch.manual_seed(0)
    again = torch.nn.Linear(4096, 4096, bias=False)
    torch.manual_seed(0)
    assert again.weight.equal(torch.nn.init.kaiming_uniform_(torch.empty(4096, 4096), a=5**0.5))
taken = resident("VmHWM") - before
pathlib.Path(os.environ["MEMTUI_RUNTIME_DIR"], f"taken.{os.getpid()}").write_text(str(taken))
model = model.cuda()
time.sleep(0.5)
assert torch.empty(1 << 20).normal_().std() > 0.9
optimizer = torch.optim.AdamW(model.parameters())
for step in range(8):
    model(torch.randn(4, 4096, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_LAYER_BYTES = 64 << 20


def _taken(tmp_path: pathlib.Path) -> list[int]:
    return [int(path.read_text()) for path in (tmp_path / "runtime").glob("taken.*")]


def test_a_model_built_on_the_host_takes_little_of_it(tmp_path: pathlib.Path) -> None:
    """Of a GiB 64 MiB keep their values: 16 layers, a GiB, take a fraction, and the answer is what it is with more."""
    program = write_script(tmp_path, _BUILT_ON_THE_HOST.replace("LAYERS", "16"))
    words = ("--gpu", "24GiB", "--context", "1MiB", "--json", program)
    answer = plan(tmp_path, *words, status=FITS, MEMTUI_PLAN_HOST_BYTES=str(1 << 30))
    assert len(_taken(tmp_path)) == 2  # one with expandable segments
    assert max(_taken(tmp_path)) < 6 * _LAYER_BYTES
    assert answer["host"]["parameter_bytes"] == 16 * _LAYER_BYTES
    assert (answer["host"]["available_bytes"], answer["host"]["kept_bytes"]) == (1 << 30, 1 << 26)
    assert answer["peak_allocated_bytes"] > 4 * 16 * _LAYER_BYTES
    (reason,) = (each for each in answer["reasons"] if "on the host" in each["text"])
    assert reason["confidence"] == "close"
    assert "1.0 GiB of the 1.0 GiB available there" in reason["text"]


def test_a_small_model_keeps_its_values(tmp_path: pathlib.Path) -> None:
    program = write_script(tmp_path, _BUILT_ON_THE_HOST.replace("LAYERS", "2"))
    words = ("--gpu", "24GiB", "--json", program)
    answer = plan(tmp_path, *words, status=FITS, MEMTUI_PLAN_HOST_BYTES=str(8 << 30), KEPT="1")
    assert min(_taken(tmp_path)) > 2 * _LAYER_BYTES
    assert answer["host"]["parameter_bytes"] is None
    assert not any("on the host" in each["text"] for each in answer["reasons"])


def test_what_takes_the_hosts_memory_is_ended_before_it_is_all_gone(tmp_path: pathlib.Path) -> None:
    """Other tensors than parameters: it is ended at seven eighths of what there is said to be."""
    held = "import time, torch\ntorch.zeros(1, device='cuda')\nheld = []\nwhile True:\n"
    held += "    held.append(torch.ones(4 << 20))\n    time.sleep(0.02)\n"
    program = write_script(tmp_path, held)
    text = plan(tmp_path, "--gpu", "24GiB", program, status=UNKNOWN, MEMTUI_PLAN_HOST_BYTES=str(2 << 30))
    line = " ".join(text.split())
    assert "unknown: it was ended, as it had taken 1." in line
    assert "of this machine's memory, of 2.0 GiB available" in line
