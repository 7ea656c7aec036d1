"""Trainings that print everything about themselves that a monitor could disturb.

    training.py KIND

Losses as exact hexadecimal, random states, peak statistics, hashes of what is saved: two runs print the same bytes.
Knows nothing of memtui.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import io
import json
import os
import random
import signal
import sys

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Trap(nn.Module):
    """Passes its input on, and does something in the third forward or backward."""

    def __init__(self, act=None, in_backward=False):
        super().__init__()
        self.act, self.in_backward, self.count = act, in_backward, 0

    def forward(self, x):
        self.count += 1
        if self.act is None or self.count != 3:
            return x
        return Backward.apply(x, self.act) if self.in_backward else self.run(x)

    def run(self, x):
        self.act()
        return x


class Backward(torch.autograd.Function):
    """Acts when its gradient comes."""

    @staticmethod
    def forward(ctx, x, act):
        ctx.act = act
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.act()
        return gradient, None


def fail():
    raise RuntimeError("the program's own error")


def exhaust():
    if DEVICE == "cuda":
        total = torch.cuda.mem_get_info()[1]
        torch.empty(2 * total, dtype=torch.uint8, device=DEVICE)
    raise MemoryError("no more")


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))  # the handler runs at the next opportunity


def leave():
    sys.stdout.flush()
    os._exit(7)


def mlp(act=None, in_backward=False):
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), Trap(act, in_backward), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.1), 2)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.inner(x.view(-1, 4, 64).expand(-1, 4, 64)).mean(1))


def state():
    # When cyclic garbage goes, and in which order, is Python's to choose; the order decides how often blocks are split.
    gc.collect()
    found = {
        "torch": hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()[:16],
        "python": hashlib.sha256(repr(random.getstate()).encode()).hexdigest()[:16],
    }
    if DEVICE == "cuda":
        found["cuda"] = hashlib.sha256(torch.cuda.get_rng_state().numpy().tobytes()).hexdigest()[:16]
        found["memory"] = {
            key: value
            for key, value in torch.cuda.memory_stats().items()
            if not (key.startswith("inactive_split") and key.endswith((".allocated", ".freed")))
        }
        found["reserved"] = torch.cuda.memory_reserved()
    return found


def train(model, steps=5, batches=None, optimizer=None):
    optimizer = optimizer or torch.optim.Adam(model.parameters())
    for step in range(steps):
        x = next(batches).to(DEVICE) if batches is not None else torch.randn(32, 64, device=DEVICE)
        loss = model(x.view(-1, 64)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item().hex(), flush=True)
    return optimizer


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.full((64,), index / 256) + torch.rand(64)


def loader(method):
    data = torch.utils.data.DataLoader(Numbers(), 32, num_workers=2, multiprocessing_context=method)
    model = mlp().to(DEVICE)
    batches = iter(data)
    train(model, 8, batches)
    assert next(batches, None) is None  # its workers end here, and not in the interpreter's last moments


def plain_mlp():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


def compiled():
    model = plain_mlp().to(DEVICE)
    run = torch.compile(model, backend="aot_eager")
    train(run)
    other = plain_mlp().to(DEVICE)
    optimizer = torch.optim.Adam(other.parameters())

    @torch.compile(backend="aot_eager")
    def loss_of(x):
        return other(x).pow(2).mean()

    for _ in range(3):
        loss = loss_of(torch.randn(32, 64, device=DEVICE))
        loss.backward()
        optimizer.step()
        print(loss.item().hex(), flush=True)
    third = plain_mlp().to(DEVICE)
    third.compile(backend="aot_eager")
    train(third)
    print(torch._dynamo.utils.counters["stats"], torch._dynamo.utils.counters["graph_break"])


def saved():
    model = mlp().to(DEVICE)
    optimizer = train(model)
    for what in (model, model.state_dict(), optimizer.state_dict(), copy.deepcopy(model), [model, model[0]]):
        buffer = io.BytesIO()
        torch.save(what, buffer)
        print(len(buffer.getvalue()), flush=True)
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)[0]
    print(type(again._forward_pre_hooks), repr(again._forward_pre_hooks), repr(model._forward_pre_hooks))
    scripted = torch.jit.script(nn.Sequential(nn.Linear(64, 8), nn.ReLU()).to(DEVICE))
    traced = torch.jit.trace(model, torch.randn(2, 64, device=DEVICE))
    print(scripted(torch.randn(3, 64, device=DEVICE)).shape, traced(torch.randn(2, 64, device=DEVICE)).shape)
    handle = model.register_forward_pre_hook(lambda module, args: print("own hook"))
    model(torch.randn(2, 64, device=DEVICE))
    handle.remove()
    print(len(model._forward_pre_hooks), flush=True)


def averaged():
    model = Attention().to(DEVICE)
    average = torch.optim.swa_utils.AveragedModel(model)
    teacher = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(4):
        x = torch.randn(16, 64, device=DEVICE)
        with torch.no_grad():
            aim = teacher(x)
        loss = (model(x) - aim).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        average.update_parameters(model)
        print(loss.item().hex(), average(x).sum().item().hex(), flush=True)


KINDS = {
    "mlp": lambda: train(mlp().to(DEVICE)),
    "gpt": lambda: train(Attention().to(DEVICE)),
    "loader_fork": lambda: loader("fork"),
    "loader_spawn": lambda: loader("spawn"),
    "compiled": compiled,
    "saved": saved,
    "averaged": averaged,
    "crash_forward": lambda: train(mlp(fail).to(DEVICE)),
    "crash_backward": lambda: train(mlp(fail, in_backward=True).to(DEVICE)),
    "out_of_memory": lambda: train(mlp(exhaust).to(DEVICE)),
    "out_of_memory_backward": lambda: train(mlp(exhaust, in_backward=True).to(DEVICE)),
    "interrupted_forward": lambda: train(mlp(interrupt).to(DEVICE)),
    "interrupted_backward": lambda: train(mlp(interrupt, in_backward=True).to(DEVICE)),
    "os_exit": lambda: train(mlp(leave).to(DEVICE)),
    "sys_exit": lambda: (train(mlp().to(DEVICE)), sys.exit(3)),
}


if __name__ == "__main__":
    torch.set_num_threads(1)  # with more, torch itself may sum in another order
    torch.manual_seed(1)
    random.seed(1)
    KINDS[sys.argv[1]]()
    print(json.dumps(state(), sort_keys=True))
