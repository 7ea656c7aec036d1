"""Data parallel training with DistributedDataParallel: `torchrun --nproc-per-node 2 ddp.py [nccl|gloo]`."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 100))
    model = DistributedDataParallel(model.to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(20):
        inputs = torch.randn(128, 1024, device=device)
        labels = torch.randint(0, 100, (128,), device=device)
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print("peak", torch.cuda.max_memory_allocated())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
