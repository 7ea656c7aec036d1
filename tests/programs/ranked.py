"""A distributed training for tests of several ranks: torchrun ... ranked.py [--faults]

DDP or FSDP2 over gloo, or each rank alone, on its own device, in small steps until `--seconds` are over. Every fault is
of the rank whose number is given: a batch that is three times as large, a context on device 0, an exception, a sleep.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import time
from typing import Any

import torch
from torch import distributed, nn


def main(rank: int, world: int, options: argparse.Namespace) -> None:
    local = int(os.environ.get("LOCAL_RANK", rank))
    if options.stray == rank:
        torch.zeros(1, device="cuda")
    torch.cuda.set_device(0 if options.share else local)
    if options.kind != "alone":
        distributed.init_process_group("gloo", rank=rank, world_size=world)
    wide = options.wide
    model: nn.Module = nn.Sequential(*(nn.Linear(wide, wide) for _ in range(options.layers))).cuda()
    if options.kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for layer in model[:-1]:  # what is left is the root's, which stays gathered between forward and backward
            fully_shard(layer)
        fully_shard(model)
    elif options.kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = options.batch * (3 if options.large == rank else 1)
    loader: Any = torch.utils.data.DataLoader(torch.zeros(64, 1), num_workers=options.workers)
    waiting = iter(loader)  # its workers stay as long as this is kept
    end, step = time.monotonic() + options.seconds, 0
    life = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    while time.monotonic() < end:
        step += 1
        if options.own and step == options.at:
            own = {"peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.memory_reserved()}
            pathlib.Path(options.own, f"own-{rank}.json").write_text(json.dumps(own))
        if options.fails == rank and step == options.at and life == 0:
            raise ValueError("no such sample")
        if options.exhausts == rank and step == options.at and life == 0:
            torch.empty(100 << 30, dtype=torch.uint8, device="cuda")
        if options.sleeps == rank and step == options.at:
            time.sleep(options.seconds)
        inputs = torch.randn(batch, wide, device="cuda")
        loss = model(inputs).square().mean()
        time.sleep(options.pause * (3 if options.slow == rank else 1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss, inputs
        time.sleep(options.pause)
    del waiting
    if options.kind != "alone":
        distributed.destroy_process_group()


def spawned(rank: int, world: int, options: argparse.Namespace) -> None:
    main(rank, world, options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="ddp", choices=("ddp", "fsdp", "alone"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--wide", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--at", type=int, default=20)
    parser.add_argument("--own", default="")  # where each rank writes what torch tells it
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--spawn", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0)
    for name in ("large", "stray", "fails", "sleeps", "slow", "exhausts"):
        parser.add_argument(f"--{name}", type=int, default=-1)
    given = parser.parse_args()
    if given.spawn:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("TEST_PORT", "29511"))
        torch.multiprocessing.spawn(spawned, (given.spawn, given), given.spawn)
    else:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), given)
