"""Runs out of memory in the ways that its arguments name, one after the other, and goes on.

    failing.py CAUSE...

For each cause a JSON line: its name, the message of torch's exception, and what torch counts while the failed call's
memory is still there. Of a device of 2 GiB. Knows nothing of memtui.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time

import torch

MIB = 1 << 20
HOLDING = """
import sys, torch
held = torch.empty(1300 << 20, dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""


def hold(mib):
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")


def network(width, layers=4):
    return torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers))).cuda()


class Kept(torch.autograd.Function):
    """Keeps a tensor of so many MiB for backward, and makes one of the same size there for a moment."""

    @staticmethod
    def forward(context, rows, mib, backward_mib):
        context.backward_mib = backward_mib
        context.save_for_backward(hold(mib))
        return rows.clone()

    @staticmethod
    def backward(context, gradient):
        hold(context.backward_mib)
        return gradient, None, None


class Model(torch.nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.inner = network(width)

    def forward(self, rows, mib=8, backward_mib=1):
        return Kept.apply(self.inner(rows), mib, backward_mib)


def train(model, optimizer, steps, rows=64, **extra):
    weight = next(model.parameters())
    for _ in range(steps):
        batch = torch.randn(rows, weight.shape[-1], device="cuda", dtype=weight.dtype)
        model(batch, **extra).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def impossible(failed):
    hold(4096)


def storm(failed):
    """More than the agent keeps until its next tick."""
    for _ in range(1999):
        with contextlib.suppress(torch.OutOfMemoryError):
            hold(4096)
    hold(4096)


def full(failed):
    failed.kept = [hold(100) for _ in range(18)]
    hold(300)


def fragmentation(failed):
    freed = [hold(600), hold(600), hold(400)]
    freed.clear()
    failed.kept = [hold(390), hold(350), hold(350)]
    hold(800)


def pool(failed):
    failed.kept = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(failed.kept):
        failed.tensor = hold(1)
        gone = hold(1200)
        failed.more = hold(1)
    del gone
    hold(900)


def cap(failed):
    torch.cuda.set_per_process_memory_fraction(0.25)
    failed.kept = [hold(100) for _ in range(4)]
    hold(400)


def other(failed):
    torch.cuda.set_per_process_memory_fraction(1.0)
    child = subprocess.Popen([sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    failed.child = child
    child.stdout.readline()
    failed.kept = hold(100)
    time.sleep(2.5)  # the driver is read once a second
    hold(700)


def optimizer(failed):
    """Four layers of 8192 in half precision have 512 MiB, their gradients as much, and Adam twice that."""
    failed.model = network(8192).half()
    failed.optimizer = torch.optim.Adam(failed.model.parameters())
    train(failed.model, failed.optimizer, 1, rows=1)


def weights(failed):
    failed.model = network(8192, 6).half()
    failed.model(torch.randn(1, 8192, device="cuda").half())
    hold(1400)


def gradients(failed):
    failed.model = network(8192).half()
    failed.model(torch.randn(1, 8192, device="cuda").half()).sum().backward()
    failed.model(torch.randn(1, 8192, device="cuda").half())
    hold(1200)


def state(failed):
    failed.model = network(4096)
    failed.optimizer = torch.optim.Adam(failed.model.parameters(), foreach=False)
    train(failed.model, failed.optimizer, 1, rows=1)
    failed.model(torch.randn(1, 4096, device="cuda"))
    hold(1300)


def activations(failed):
    failed.model = Model()
    failed.optimizer = torch.optim.SGD(failed.model.parameters(), 0.1)
    failed.out = failed.model(torch.randn(64, 512, device="cuda"), mib=1500).sum()
    failed.model(torch.randn(64, 512, device="cuda"), mib=1500)


def batch(failed):
    model = failed.model = Model()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    train(model, sgd, 8, mib=300)
    train(model, sgd, 1, rows=128, mib=600, backward_mib=1600)


def evaluation(failed):
    model = failed.model = Model()
    train(model, torch.optim.SGD(model.parameters(), 0.1), 4, mib=100)
    with torch.no_grad():
        model(torch.randn(64, 512, device="cuda"), mib=1940)


def with_gradients(failed):
    """An evaluation that has forgotten torch.no_grad(), and keeps its outputs."""
    model = failed.model = Model()
    train(model, torch.optim.SGD(model.parameters(), 0.1), 4, mib=100)
    model.eval()
    failed.kept = []
    while True:
        failed.kept.append(model(torch.randn(64, 512, device="cuda"), mib=100))


def checkpoint(failed):
    model = failed.model = Model()
    train(model, torch.optim.SGD(model.parameters(), 0.1), 4, mib=100)
    failed.kept = hold(1400)
    path = os.path.join(os.environ["TMPDIR"], "state.pt")
    torch.save(torch.zeros(700 * MIB // 4), path)
    torch.load(path, map_location="cuda")


def recorded(failed):
    """memtui records the sixth step of what it has started itself."""
    model = failed.model = Model()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    train(model, sgd, 5, mib=16)
    model(torch.randn(64, 512, device="cuda"))
    failed.kept = [hold(600) for _ in range(4)]


def late_leak(failed):
    """Keeps 4 MiB a step, after steps that keep nothing."""
    model = failed.model = Model(256)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    failed.kept = [hold(1200)]
    for step in range(100000):
        train(model, sgd, 1, mib=16)
        if step >= 100:
            failed.kept.append(hold(4))
        time.sleep(0.02)


def leak(failed):
    """4 MiB are kept at each step, in 170 of them the device is full."""
    model = failed.model = Model(256)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    failed.kept = [hold(1200)]
    while True:
        train(model, sgd, 1, mib=16)
        failed.kept.append(hold(4))
        time.sleep(0.02)


class Failed:
    """What a cause still holds when it has failed."""


def main():
    causes = sys.argv[1:]
    if "--wait" in causes:
        causes.remove("--wait")
        hold(1)
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0.05)[0]:
            pass
    killed = "--killed" in causes
    if "--later" in causes:
        hold(1)
        time.sleep(2)
    for name in causes:
        if name.startswith("--"):
            continue
        failed = Failed()
        try:
            globals()[name](failed)
        except torch.OutOfMemoryError as error:
            stats = torch.cuda.memory_stats()
            said = {
                "message": str(error),
                "allocated": stats["allocated_bytes.all.current"],
                "reserved": stats["reserved_bytes.all.current"],
                "free": torch.cuda.mem_get_info()[0],
            }
            print(json.dumps([name, said]), flush=True)
            if killed:
                os.kill(os.getpid(), signal.SIGKILL)
            if hasattr(failed, "child"):
                failed.child.communicate(b"")
        del failed
        torch.cuda.empty_cache()
        time.sleep(0.2)


main()
