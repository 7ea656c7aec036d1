"""Trainings that print the names, shapes and blocks of their own tensors, as torch tells them.

    tensors.py KIND

Goes on with its steps until its input ends. `memtui.tag` is used where memtui can be imported.
"""

from __future__ import annotations

import gc
import json
import select
import sys
import time
import weakref

import torch
from torch import nn

from memtui.examples.gpt import GPT

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class LowRank(nn.Module):
    """A frozen layer with a small trainable detour."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.down, self.up = nn.Linear(width, 8, bias=False), nn.Linear(8, width, bias=False)
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x):
        return self.base(x) + self.up(self.down(x)) * self.scale


class Tied(nn.Module):
    """Two names for one weight, and a view into it as a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(512, 512), nn.Linear(512, 512)
        self.outer.weight = self.inner.weight
        self.register_buffer("part", self.inner.weight.detach()[256:])

    def _apply(self, function, recurse=True):
        super()._apply(function, recurse)
        self.outer.weight = self.inner.weight
        self.part = self.inner.weight.detach()[256:]
        return self

    def forward(self, x):
        return self.outer(torch.relu(self.inner(x)))


def mlp(width=1024):
    layers = (nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 4 * width), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(4 * width, width))


def gpt():
    return GPT(vocabulary=50, layers=2, width=128, heads=4, context=64)


def block_of(tensor):
    """Bytes of the allocator's block that a tensor lies in."""
    address = tensor.data_ptr()
    for segment in torch.cuda.memory_snapshot(include_traces=False):
        start = segment["address"]
        for block in segment["blocks"]:
            if start <= address < start + block["size"]:
                return block["size"]
            start += block["size"]
    return None


def told(tensor):
    return [list(tensor.shape), str(tensor.dtype).replace("torch.", ""), block_of(tensor)]


class Loop:
    """One or several models, each with its own optimizer."""

    def __init__(self, models, inputs, optimizer=torch.optim.AdamW) -> None:
        self.models, self.inputs = [model.to(DEVICE) for model in models], inputs
        self.optimizers = [
            optimizer([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1e-3)
            for model in self.models
        ]
        self.points: dict[str, int] = {}
        self.gradients: dict[str, list] = {}

    def prefix(self, model):
        return f"{type(model).__name__}." if len(self.models) > 1 else ""

    def step(self, note=False):
        for model, optimizer in zip(self.models, self.optimizers):
            self.point("forward", note)
            loss = model(self.inputs).float().pow(2).mean()
            time.sleep(0.004)
            self.point("backward", note)
            loss.backward()
            self.point("optimizer", note)
            if note:
                for name, parameter in model.named_parameters():
                    if parameter.grad is not None:
                        self.gradients[f"{self.prefix(model)}{name} (gradient)"] = told(parameter.grad)
            optimizer.step()
            self.point("between", note)
            optimizer.zero_grad()
            self.last = loss.item().hex()
            del loss
            time.sleep(0.004)

    def point(self, name, note):
        if note and DEVICE == "cuda":
            self.points.setdefault(name, []).append(torch.cuda.memory_allocated())

    def tensors(self):
        found = {}
        for model, optimizer in zip(self.models, self.optimizers):
            names = {}
            for name, parameter in model.named_parameters():
                names[parameter] = self.prefix(model) + name
                found[names[parameter]] = told(parameter)
            for name, buffer in model.named_buffers():
                found[self.prefix(model) + name] = told(buffer)
            for parameter, state in optimizer.state.items():
                for key, value in state.items():
                    if value.is_cuda:
                        found[f"{names[parameter]} {key}"] = told(value)
        return found


def wide(width=1024):
    return torch.randn(64, width, device=DEVICE)


class Other(nn.Sequential):
    """Another class of model."""


KINDS = {
    "mlp": lambda: Loop([mlp()], wide()),
    "gpt": lambda: Loop([gpt()], torch.randint(50, (4, 64), device=DEVICE)),
    "tied": lambda: Loop([Tied()], wide(512)),
    "lora": lambda: Loop([LowRank(512)], wide(512)),
    "two": lambda: Loop([nn.Sequential(nn.Linear(512, 512)), Other(nn.Linear(512, 256))], wide(512)),
    "tagged": lambda: Loop([mlp(256)], wide(256)),
}


def waits():
    return not select.select([sys.stdin], [], [], 0)[0]


def main(kind: str) -> None:
    torch.manual_seed(1)
    loop = KINDS[kind]()
    expected = {}
    cache = {"keys": [torch.zeros(1 << 20, device=DEVICE)], "values": (torch.zeros(1 << 18, device=DEVICE),)}
    if kind == "tagged":
        import memtui

        memtui.tag(cache, "cache")
        memtui.tag(loop.inputs, "batch")
        memtui.tag(loop.models[0][0].weight, "not this name")
        expected["cache.keys.0"], expected["cache.values.0"] = told(cache["keys"][0]), told(cache["values"][0])
        expected["batch"] = told(loop.inputs)
    for number in range(4):
        loop.step(note=number == 3)
    expected.update(loop.tensors())
    print(json.dumps([expected, loop.gradients, loop.points]), flush=True)
    while waits():
        loop.step()
    if kind == "tagged":
        references = [weakref.ref(cache["keys"][0]), weakref.ref(loop.inputs), weakref.ref(loop.models[0][0].weight)]
        before = torch.cuda.memory_allocated()
        cache.clear()
        freed = before - torch.cuda.memory_allocated()
        loop.inputs = loop.models = loop.optimizers = None
        gc.collect()
        print(json.dumps([freed, [reference() is None for reference in references]]), flush=True)


def fixed(steps: int) -> None:
    """So many steps of a training; then everything that somebody who looks at it could have disturbed."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    loop = KINDS["mlp"]() if DEVICE == "cuda" else Loop([mlp(64)], wide(64))
    for _ in range(steps):
        loop.step()
        print(loop.last, flush=True)
    loop.models = loop.optimizers = loop.inputs = None
    gc.collect()
    if DEVICE == "cuda":
        print(json.dumps(torch.cuda.memory_stats(), sort_keys=True))


if __name__ == "__main__":
    fixed(int(sys.argv[2])) if sys.argv[1] == "fixed" else main(sys.argv[1])
