"""Children of every kind under virtual GPUs: workers, ranks, forks, and programs that know nothing of torch."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.virtual_gpu.launch import without_virtual_gpus
from tests.support.virtual_gpu import virtual_environment
from tests.virtual_gpu.conftest import RunChild

pytestmark = pytest.mark.virtual_gpu

_LOADER = """
import json, sys, torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    model = torch.nn.Linear(10, 10).cuda()
    loader = DataLoader(TensorDataset(torch.arange(640.0).view(64, 10)), 16, num_workers=2, pin_memory=True,
                        multiprocessing_context=sys.argv[1])
    sums = []
    for (batch,) in loader:
        sums.append(batch.sum().item())
        model(batch.to('cuda', non_blocking=True)).sum().backward()
    used = torch.cuda.mem_get_info()
    print(json.dumps([sum(sums), used[1] - used[0] >= torch.cuda.memory_reserved() > 0]))

if __name__ == '__main__':
    main()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers(tmp_path: Path, method: str) -> None:
    script = tmp_path / "loader.py"
    script.write_text(_LOADER)
    child = subprocess.run(
        [sys.executable, str(script), method],
        env=virtual_environment(),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout) == [sum(range(640)), True]


_RANK = """
import os, torch, torch.nn as nn, torch.distributed as dist
dist.init_process_group('gloo')
rank = dist.get_rank()
torch.cuda.set_device(rank)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
before = torch.cuda.memory_allocated()
wrapped = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW(wrapped.parameters())
for _ in range(2):
    wrapped(torch.randn(64, 1024, device='cuda')).pow(2).mean().backward(); optimizer.step(); optimizer.zero_grad()
with open(os.environ['RESULTS'] + '/' + str(rank), 'w') as file:
    print(torch.cuda.current_device(), torch.cuda.memory_allocated() / before, file=file)
dist.barrier(); dist.destroy_process_group()
"""


def test_two_ranks_through_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(_RANK)
    child = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)],
        env={**virtual_environment(count=2), "RESULTS": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    # Each rank has a device of its own with parameters, DDP's buckets (the gradients are views of them),
    # and AdamW's two states; the rest is cuBLAS's workspaces.
    for rank in range(2):
        device, times_parameters = (tmp_path / str(rank)).read_text().split()
        assert int(device) == rank
        assert 4.0 <= float(times_parameters) < 4.7


def test_a_fork_does_not_take_its_parents_memory_along(run_child: RunChild) -> None:
    source = """
import json, os, torch
x = torch.empty(100 << 20, dtype=torch.uint8, device='cuda')
before = torch.cuda.mem_get_info()
pid = os.fork()
if not pid:
    import sys
    sys.exit(0)  # runs every destructor
os.waitpid(pid, 0)
after = torch.cuda.mem_get_info()
print(json.dumps([list(before), list(after)]))
"""
    before, after = run_child(source, virtual_environment(memory="1GiB"))
    assert before == after == [(1024 - 100) << 20, 1 << 30]


def test_forks_while_other_threads_allocate(run_child: RunChild) -> None:
    source = """
import json, os, threading, torch
stop = threading.Event()
def churn():
    while not stop.is_set():
        x = torch.empty(4 << 20, dtype=torch.uint8, device='cuda'); del x; torch.cuda.empty_cache()
threads = [threading.Thread(target=churn) for _ in range(3)]
for t in threads: t.start()
statuses = []
for _ in range(40):
    pid = os.fork()
    if not pid:
        import ctypes
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        handle = next(l.split()[-1] for l in open('/proc/self/maps') if 'libcudart' in l)
        status = ctypes.CDLL(handle).cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))  # takes every lock
        os._exit(status)
    statuses.append(os.waitpid(pid, 0)[1])
stop.set()
for t in threads: t.join()
print(json.dumps(statuses))
"""
    assert run_child(source, virtual_environment()) == [0] * 40


def test_processes_compete_for_a_device(run_child: RunChild) -> None:
    source = """
import json, subprocess, sys, torch
x = torch.empty(700 << 20, dtype=torch.uint8, device='cuda')
if len(sys.argv) > 1:
    sys.exit(0)
again = subprocess.run([sys.executable, '-c', open('/proc/self/cmdline').read().split(chr(0))[2], 'child'],
                       capture_output=True, text=True)
print(json.dumps([again.returncode, 'CUDA out of memory' in again.stderr, '700.00 MiB memory in use' in again.stderr]))
"""
    assert run_child(source, virtual_environment(memory="1GiB")) == [1, True, True]


def test_a_program_that_ends_right_after_backward_ends_well(run_child: RunChild) -> None:
    source = """
import json, torch
print(json.dumps(1), flush=True)
x = torch.randn(64, 64, device='cuda', requires_grad=True)
(x @ x).sum().backward()
"""
    environment = virtual_environment()
    for _ in range(4):  # one in four did not
        run_child(source, environment)


def test_other_programs_do_not_notice(tmp_path: Path) -> None:
    environment = virtual_environment()
    plain = without_virtual_gpus(environment)
    assert "LD_PRELOAD" not in plain
    for command in (
        ["ls", "/"],
        ["sh", "-c", "echo $$ > /dev/null; printf '%s\\n' done"],
        [sys.executable, "-S", "-c", "print(2)"],
    ):
        with_gpus = subprocess.run(command, env=environment, capture_output=True, check=True)
        without = subprocess.run(command, env=plain, capture_output=True, check=True)
        assert (with_gpus.stdout, with_gpus.stderr) == (without.stdout, without.stderr)


def test_a_compiler_and_what_it_made_run(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source = tmp_path / "hello.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n')
    environment = virtual_environment()
    subprocess.run([compiler, str(source), "-o", str(tmp_path / "hello")], env=environment, check=True)
    made = subprocess.run([str(tmp_path / "hello")], env=environment, capture_output=True, text=True, check=True)
    assert (made.stdout, made.stderr) == ("hello\n", "")


def test_a_python_without_torch_maps_no_device(run_child: RunChild) -> None:
    source = "import json; print(json.dumps(sum('usage' in line for line in open('/proc/self/maps'))))"
    assert run_child(source, virtual_environment()) == 0


def test_a_library_answers_to_its_name_without_a_version(run_child: RunChild) -> None:
    """As the link does that an installed driver has; torch 2.1 asks for "libcuda.so" when memory has run out."""
    source = """
import ctypes, json, os
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p)] + [(n, ctypes.c_void_p) for n in ("s", "a")]
def found(name):
    info = Info()
    symbol = ctypes.cast(ctypes.CDLL(name, mode=os.RTLD_LAZY | os.RTLD_NOLOAD).cuInit, ctypes.c_void_p)
    ctypes.CDLL(None).dladdr(symbol, ctypes.byref(info))
    return info.base
print(json.dumps([found("libcuda.so") == found("libcuda.so.1"), found("/usr/lib/libcuda.so") == found("libcuda.so.1")]))
"""
    assert run_child(source, virtual_environment()) == [True, True]


def test_the_usage_file_is_private() -> None:
    path = Path(virtual_environment()["VGPU_SHM"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.stat().st_uid == os.getuid()


def test_every_environment_has_devices_of_its_own() -> None:
    first, second = virtual_environment(), virtual_environment()
    assert first["VGPU_SHM"] != second["VGPU_SHM"]
    assert first["LD_PRELOAD"] == second["LD_PRELOAD"]
