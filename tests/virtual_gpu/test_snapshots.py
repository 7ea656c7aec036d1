"""A snapshot that torch itself records and writes, opened, against the counters of torch."""

from __future__ import annotations

import json
import pathlib

import pytest

from memtui.cli import main
from memtui.snapshots.model import open_snapshot
from memtui.snapshots.queries import Opened, by_category
from tests.support.virtual_gpu import virtual_environment
from tests.virtual_gpu.conftest import RunChild

pytestmark = pytest.mark.virtual_gpu

#: Sizes are whole blocks of the allocator, so that what was asked for is what was given.
PROGRAM = """
import json, sys, torch
record = torch.cuda.memory._record_memory_history
before = torch.empty(24 << 20, dtype=torch.uint8, device="cuda")
record(max_entries=100_000, stacks="python")
model = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(512, 1024, device="cuda"))
    loss.backward(torch.ones_like(loss))
    optimizer.step()
at_failure = None
try:
    torch.empty(60 << 30, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    at_failure = [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]
del model
torch.cuda.memory._dump_snapshot(sys.argv[1])
told = torch.cuda.memory_stats()
names = ("allocated_bytes.all.current", "reserved_bytes.all.current", "requested_bytes.all.current",
         "allocated_bytes.all.peak", "reserved_bytes.all.peak")
print(json.dumps({**{name: told[name] for name in names}, "at_failure": at_failure}))
"""


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_a_snapshot_equals_the_counters(
    run_child: RunChild, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], settings: str
) -> None:
    """The end and the peak exactly, and the request that failed at what there was then."""
    path = tmp_path / "train.pickle"
    environment = {**virtual_environment(memory="24GiB"), "PYTORCH_CUDA_ALLOC_CONF": settings}
    right = run_child(PROGRAM, environment, str(path))
    snapshot = open_snapshot(str(path), 4 << 30)
    told = Opened(snapshot, snapshot.device("cuda:0"))

    assert told.device.allocated_bytes == right["allocated_bytes.all.current"]
    assert told.device.reserved_bytes == right["reserved_bytes.all.current"]
    assert told.device.requested_bytes == right["requested_bytes.all.current"]
    assert told.course.peak_bytes == right["allocated_bytes.all.peak"]
    assert max(told.course.reserved_bytes) == right["reserved_bytes.all.peak"]
    assert told.at().rest_bytes == told.end().rest_bytes == 0
    (failed,) = told.out_of_memory()
    assert [failed.allocated_bytes, failed.reserved_bytes] == right["at_failure"]
    assert (failed.requested_bytes, failed.stack.frames[0].text) == (60 << 30, "<string>:15 <module>")
    assert 0 < failed.largest_free_bytes < failed.reserved_bytes - failed.allocated_bytes + 1
    assert (snapshot.notices, told.notices) == ((), ())
    weights = 2 * 4 * 1024 * 2048 + 4 * (1024 + 2048)
    sizes = {group.name: group.size_bytes for group in by_category(told.at().live)}
    assert sizes["parameters"] == sizes["optimizer"] == weights
    assert sizes["before the recording"] == 24 << 20

    out = tmp_path / "view.html"
    assert main(["open", str(path), "--html", str(out)]) == 0
    assert "cdn.jsdelivr.net" in capsys.readouterr().out
    assert "snapshot.pickle" in out.read_text(encoding="utf-8")
    assert main(["open", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"][0]["events"] == told.course.instants - 1
