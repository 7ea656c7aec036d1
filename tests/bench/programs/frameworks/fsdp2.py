"""Sharded training with FSDP2's fully_shard: `torchrun --nproc-per-node 2 fsdp2.py`."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    model = nn.Sequential(*(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(4))).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 128, 512, device=device)).square().mean().backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print("peak", torch.cuda.max_memory_allocated())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
