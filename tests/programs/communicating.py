"""One rank of a distributed training, until its input ends: communicating.py ddp | fsdp | slow

It says first how many bytes its parameters have. The first steps of a slow DDP take so long that all are looked at.
A flat one (FSDP's first generation) is two processes, which meet at a file: communicating.py flat FILE
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

import torch
from torch import nn


def ended(kind: str, rank: int) -> bool:
    """Whether the input has, which rank 0 tells the others."""
    done = torch.tensor(int(rank == 0 and bool(select.select([sys.stdin], [], [], 0)[0])))
    if kind == "flat":
        torch.distributed.broadcast(done, 0)
    return bool(done)


def main(kind: str, rank: int = 0, store_path: str = "") -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    if kind == "flat":
        store = torch.distributed.FileStore(store_path, 2)
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    else:
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 256)).to("cuda")
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        fully_shard(model)
    elif kind == "flat":
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(model, device_id=0, use_orig_params=True)
    else:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters())
    print(size, flush=True)
    step = 0
    while not ended(kind, rank):
        if kind == "slow" and step < 5:
            time.sleep(0.7)
        step += 1
        loss = model(torch.randn(64, 512, device="cuda")).pow(2).mean()
        time.sleep(0.004)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss
        time.sleep(0.004)


if __name__ == "__main__":
    if sys.argv[1] == "flat" and len(sys.argv) == 3:
        quiet = subprocess.DEVNULL
        with subprocess.Popen([sys.executable, *sys.argv, "1"], stdout=quiet, stderr=quiet):
            main("flat", 0, sys.argv[2])
    else:
        main(sys.argv[1], int((sys.argv[3:] or "0")[0]), "".join(sys.argv[2:3]))
