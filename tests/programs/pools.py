"""Trains with memory in private pools of the caching allocator, and says as JSON what of it is where.

    pools.py graphs|pool

After a few steps: bytes of the private pools that are live and that are free before a forward begins, how many more are
live before backward begins, and bytes of workspaces in the common pool; then it goes on until its input is closed.
Knows nothing of memtui.
"""

import json
import sys
import threading

import torch

WORKSPACE = getattr(torch._C, "_cuda_getCublasWorkspaceSize", lambda: 8_519_680)()
WIDTH, STEPS = 512, 12


def blocks(private):
    return [
        block
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if (tuple(segment["segment_pool_id"]) != (0, 0)) is private
    ]


def live(private=True):
    return sum(block["size"] for block in blocks(private) if block["state"] == "active_allocated")


def free():
    return sum(block["size"] for block in blocks(True) if block["state"] == "inactive")


def made():
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))).cuda()
    return model, torch.optim.Adam(model.parameters())


def graphs():
    """Gradients lie in the graphs' pool, also between steps, when no parameter has one."""
    model, optimizer = made()
    run = torch.cuda.make_graphed_callables(model, (torch.randn(256, WIDTH, device="cuda"),))
    return run, optimizer


def pool():
    """What is kept before training begins, and every activation, lies in a pool of the program's own."""
    own = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(own):
        kept, gone = torch.empty(3 << 20, device="cuda"), torch.empty(5 << 20, device="cuda")
    del gone
    model, optimizer = made()

    def run(x):
        assert kept.is_cuda
        with torch.cuda.use_mem_pool(own):
            return model(x)

    return run, optimizer


def main():
    run, optimizer = {"graphs": graphs, "pool": pool}[sys.argv[1]]()
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    step = 0
    while not ended.is_set():
        step += 1
        optimizer.zero_grad()
        x = torch.randn(256, WIDTH, device="cuda")
        before = (live(), free()) if step == STEPS else None
        loss = run(x).square().mean()
        if before is not None:
            workspaces = sum(block["size"] for block in blocks(False) if block["size"] == WORKSPACE)
            grown = live() - before[0]
            print(
                json.dumps({"live": before[0], "free": before[1], "grown": grown, "workspaces": workspaces}), flush=True
            )
        loss.backward()
        optimizer.step()
        del loss


if __name__ == "__main__":
    main()
