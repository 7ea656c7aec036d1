"""A training on virtual GPUs with the agent, of which nothing is kept: what the monitor needs comes through."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

from memtui.planning.capability import probe
from memtui.planning.throwaway import throwaway
from memtui.wire import frames
from tests.support import programs
from tests.support.virtual_gpu import require_virtual_gpu

_TRAINING = """
import os, sys, torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
data = TensorDataset(torch.ones(64, 1024))
for (batch,) in DataLoader(data, batch_size=16, num_workers=2):
    model(batch.cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
os.makedirs("checkpoint.tmp")
torch.save(model.state_dict(), "checkpoint.tmp/model.pt")
os.rename("checkpoint.tmp", "checkpoint")
print(torch.cuda.max_memory_allocated(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.virtual_gpu
def test_the_agent_and_the_usage_of_the_devices_are_seen_from_outside(
    sockets: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    cache = require_virtual_gpu().path
    environment = programs.virtual_environment_with_agent(sockets, memory="4GiB")
    usage = pathlib.Path(environment["VGPU_SHM"])
    capability = probe(str(tmp_path))
    if not capability.layered:
        pytest.skip(f"no layers here: {capability.line()}")
    command = programs.command("-c", _TRAINING)
    with throwaway(command, str(tmp_path), environment, capability, writable=[sockets, usage, cache]) as run:
        process = subprocess.Popen(
            run.command, cwd=run.cwd, env=run.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout is not None
            peak_bytes = int(process.stdout.readline())
            with programs.AgentConnection(sockets, process.pid) as viewer:
                assert viewer.until(lambda message: isinstance(message, frames.Hello)).pid == process.pid
            assert any(usage.read_bytes())
            process.communicate("\n")
        assert process.returncode == 0
    assert peak_bytes > 16 << 20  # weights, gradients and two moments of 4 MiB each
    assert os.listdir(tmp_path) == []
    assert run.discarded is not None
    assert run.discarded.total_bytes >= 4 << 20


_RANK = """
import os, torch, torch.distributed
torch.distributed.init_process_group("gloo")
total = torch.ones(1)
torch.distributed.all_reduce(total)
with open("rank" + os.environ["RANK"], "w"):
    print(total.item(), flush=True)
torch.distributed.destroy_process_group()
"""


@pytest.mark.torch
def test_several_ranks_meet_without_a_network(tmp_path: pathlib.Path) -> None:
    """torchrun with a rendezvous of its own, which asks for this machine's name."""
    programs.require_torch()
    script = tmp_path / "rank.py"
    script.write_text(_RANK, encoding="ascii")
    capability = probe(str(tmp_path))
    if not capability.layered:
        pytest.skip(f"no layers here: {capability.line()}")
    command = programs.command(
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script), direct=False
    )
    with throwaway(command, str(tmp_path), programs.plain_environment(), capability) as run:
        done = subprocess.run(
            run.command, cwd=run.cwd, env=run.environment, capture_output=True, text=True, timeout=150, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2.0\n2.0\n"
    assert os.listdir(tmp_path) == ["rank.py"]
