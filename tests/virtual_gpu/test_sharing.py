"""What several processes share on a virtual GPU: tensors, and a communicator's buffers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.virtual_gpu.report_file import read_reports
from tests.support.virtual_gpu import virtual_environment
from tests.virtual_gpu.conftest import RunChild

pytestmark = pytest.mark.virtual_gpu

_MIB = 1 << 20

_TENSORS = """
import json, torch, torch.multiprocessing as mp

def used():
    free, total = torch.cuda.mem_get_info()
    return (total - free) >> 20

def receive(tensors, answers):
    received = tensors.get()
    answers.put([list(received.shape), str(received.device), used(), torch.cuda.memory_allocated()])
    received.fill_(1)
    own = torch.empty_like(received)
    answers.put([used(), torch.cuda.memory_allocated() >> 20])
    del received, own
    torch.cuda.empty_cache()
    answers.put([used()])
    tensors.get()

if __name__ == "__main__":
    context = mp.get_context("spawn")
    tensors, answers = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(tensors, answers))
    child.start()
    whole = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    tensors.put(whole[1 << 20:].view(-1, 1 << 20))
    said = [answers.get(timeout=60) for _ in range(3)]
    del whole
    tensors.put(None)
    child.join()
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()
    print(json.dumps([said, child.exitcode, used()]))
"""


def test_a_tensor_that_another_process_reads(tmp_path: Path) -> None:
    """GIVEN a part of 64 MiB sent through a queue, THEN its bytes count once, for the process that made it."""
    script = tmp_path / "tensors.py"
    script.write_text(_TENSORS)
    child = subprocess.run(
        [sys.executable, str(script)],
        env=virtual_environment(),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    (received, filled, freed), status, used = json.loads(child.stdout)
    assert received == [[63, 1 << 20], "cuda:0", 64, 0]
    assert filled == [64 + 64, 64]  # torch leaves a rest of 1 MiB with the block
    assert freed == [64]
    assert (status, used) == (0, 0)


_REFUSED = """
import json, torch
from torch.multiprocessing.reductions import reduce_tensor
x = torch.zeros(1 << 20, device="cuda")
try:
    reduce_tensor(x)
    print(json.dumps("shared"))
except RuntimeError as error:
    print(json.dumps(str(error)))
"""


def test_expandable_segments_are_not_shared(tmp_path: Path, run_child: RunChild) -> None:
    environment = virtual_environment(report_file=tmp_path / "run")
    said = run_child(_REFUSED, {**environment, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    assert "not supported" in said
    (report,) = read_reports(tmp_path / "run")
    assert [(note.kind, note.name) for note in report.notes] == [("refused", "cuMemExportToShareableHandle")]


_COMMUNICATORS = """
import json, sys, torch, torch.distributed as dist

def used():
    free, total = torch.cuda.mem_get_info()
    return total - free

torch.cuda.set_device(0)
x = torch.zeros(8, device="cuda")
figures = [used()]
# Ranks do not wait for one another here: one process can be any of them.
dist.init_process_group("nccl", rank=0, world_size=int(sys.argv[1]), store=dist.HashStore())
try:
    dist.all_reduce(x)
    figures.append(used())
    dist.destroy_process_group()
    figures.append(used())
except dist.DistBackendError as error:
    figures.append(str(error))
print(json.dumps(figures))
"""


@pytest.mark.parametrize(
    ("ranks", "settings", "expected"),
    [("1", {}, 0), ("2", {}, 544), ("4", {}, 688), ("4", {"nccl_buffers_bytes": 96 * _MIB}, 96)],
)
def test_a_communicators_buffers(
    ranks: str, settings: dict[str, int], expected: int, tmp_path: Path, run_child: RunChild
) -> None:
    environment = virtual_environment(report_file=tmp_path / "run", **settings)
    before, during, after = run_child(_COMMUNICATORS, environment, ranks)
    assert during - before == expected * _MIB
    assert after == before
    (report,) = read_reports(tmp_path / "run")
    assert ("NCCL buffers" in {note.name for note in report.notes if note.kind == "estimated"}) == (expected > 0)


def test_a_communicator_that_does_not_fit(run_child: RunChild) -> None:
    before, said = run_child(_COMMUNICATORS, virtual_environment(memory="512MiB"), "2")
    assert before == 2 * _MIB
    assert "NCCL" in said
