"""Trainings that say of every step what torch says of it, for comparison with a step that was recorded.

    recorded.py KIND STEPS

A line of JSON a step: allocated bytes at each boundary, the bytes of its own tensors' blocks, the peak so far. Then
all that recording could disturb. Knows nothing of memtui but its example models.
"""

from __future__ import annotations

import collections
import gc
import hashlib
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional

from memtui.examples.gpt import GPT


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.head = nn.Linear(1024, 64)
        self.register_buffer("scale", torch.ones(64))

    def forward(self, x):
        return self.head(self.layers(x)) * self.scale


class Nested(nn.Module):
    """Modules of one class within each other, which allocate before and after their child."""

    def __init__(self, depth):
        super().__init__()
        self.inner = Nested(depth - 1) if depth else None
        self.linear = nn.Linear(256, 256)

    def forward(self, x):
        x = self.linear(x)
        if self.inner is not None:
            x = self.inner(x)
        return x.sigmoid()


class Split(nn.Module):
    """On two devices."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(256, 512, device="cuda:0"), nn.Linear(512, 64, device="cuda:1")

    def forward(self, x):
        return self.second(self.first(x).to("cuda:1"))


class Run:
    """One training; `micro` forwards and backwards a step."""

    def __init__(self, model, optimizer, batch, micro=1, grows=False, clip=False):
        self.model, self.optimizer, self.batch = model, optimizer, batch
        self.micro, self.grows, self.clip = micro, grows, clip
        self.tokens = isinstance(model, GPT)

    def inputs(self, step):
        rows = self.batch + (step if self.grows else 0)
        if self.tokens:
            return torch.randint(50, (rows, 65), device="cuda")
        return torch.randn(rows, 256, device="cuda")

    def loss(self, x):
        if self.tokens:
            scores = self.model(x[:, :-1])
            return functional.cross_entropy(scores.flatten(0, 1), x[:, 1:].flatten())
        return self.model(x).pow(2).mean()

    def step(self, number):
        said = []
        for _ in range(self.micro):
            x = self.inputs(number)
            said.append(["forward", torch.cuda.memory_allocated()])
            loss = self.loss(x)
            said.append(["backward", torch.cuda.memory_allocated()])
            loss.backward()
        if self.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        said.append(["optimizer", torch.cuda.memory_allocated()])
        self.optimizer.step()
        said.append(["end", torch.cuda.memory_allocated()])
        figures = {"step": number, "said": said, "peak": torch.cuda.max_memory_allocated(), "own": self.own()}
        figures["end"] = [torch.cuda.memory_allocated(index) for index in range(torch.cuda.device_count())]
        self.optimizer.zero_grad()
        return loss, figures

    def own(self):
        """Bytes of the blocks of its own tensors."""
        found = {}
        for segment in torch.cuda.memory_snapshot():
            address = segment["address"]
            for block in segment["blocks"]:
                found[address] = block["size"]
                address += block["size"]
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        tensors = {
            "parameters": list(self.model.parameters()),
            "gradients": [parameter.grad for parameter in self.model.parameters()],
            "optimizer_state": [value for value in state if torch.is_tensor(value) and value.is_cuda],
            "buffers": list(self.model.buffers()),
        }
        return {name: sum(found[address] for address in {t.data_ptr() for t in held}) for name, held in tensors.items()}


class Told(Run):
    """Says where its optimizer's step begins and ends by hooks, so that it may be anybody who calls it."""

    def __init__(self, model, optimizer):
        super().__init__(model, optimizer, 512)
        self.said = []
        optimizer.register_step_pre_hook(lambda *_: self.say("optimizer"))
        optimizer.register_step_post_hook(lambda *_: self.say("between"))

    def say(self, phase):
        self.said.append([phase, torch.cuda.memory_allocated()])

    def evaluate(self, x, scaler=None):
        self.say("forward")
        loss = self.loss(x)
        loss = loss if scaler is None else scaler.scale(loss)
        self.say("backward")
        loss.backward()
        return loss

    def step(self, number):
        self.said = []
        loss = self.train(self.inputs(number))
        end = [torch.cuda.memory_allocated(index) for index in range(torch.cuda.device_count())]
        return loss, {"step": number, "said": self.said, "end": end}


class Scaled(Told):
    """With a GradScaler, which unscales between backward and the optimizer."""

    def __init__(self, model, optimizer):
        super().__init__(model, optimizer)
        self.scaler = torch.amp.GradScaler("cuda")

    def train(self, x):
        loss = self.evaluate(x, self.scaler)
        self.say("between")
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss


class Closure(Told):
    """The optimizer evaluates the model itself, several times."""

    def train(self, x):
        def evaluate():
            self.optimizer.zero_grad()
            loss = self.evaluate(x)
            self.say("optimizer")
            return loss

        return self.optimizer.step(evaluate)


class Inside(Told):
    """Each parameter has an optimizer of its own, which steps in backward as soon as there is a gradient."""

    def __init__(self, model, optimizer):
        super().__init__(model, optimizer)
        self.inside = {parameter: torch.optim.Adam([parameter]) for parameter in model.parameters()}
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self.update)

    def update(self, parameter):
        self.inside[parameter].step()
        self.inside[parameter].zero_grad()

    def train(self, x):
        loss = self.evaluate(x)
        self.say("between")
        return loss


def told(kind, optimizer=torch.optim.Adam, **options):
    model = Mlp().cuda()
    return kind(model, optimizer(model.parameters(), **options))


def mlp(**options):
    model = Mlp().cuda()
    return Run(model, torch.optim.Adam(model.parameters(), foreach=True), 512, **options)


def fused():
    model = Mlp().cuda()
    return Run(model, torch.optim.AdamW(model.parameters(), fused=True), 512, grows=True)


def sgd():
    model = Mlp().cuda()
    return Run(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), 512)


def gpt():
    model = GPT(50, 3, 192, 6, 64).cuda()
    return Run(model, torch.optim.AdamW(model.parameters()), 8, grows=True, clip=True)


def nested():
    model = Nested(3).cuda()
    return Run(model, torch.optim.SGD(model.parameters(), lr=0.1), 300)


def compiled():
    run = mlp()
    run.model = torch.compile(run.model, backend="aot_eager")
    return run


def split():
    model = Split()
    return Run(model, torch.optim.Adam(model.parameters()), 512)


KINDS = {
    "mlp": mlp,
    "fused": fused,
    "sgd": sgd,
    "gpt": gpt,
    "accumulated": lambda: mlp(micro=3),
    "nested": nested,
    "split": split,
    "compiled": compiled,
    "scaled": lambda: told(Scaled),
    # The figures on a virtual GPU are nobody's: it goes on whatever they are.
    "closure": lambda: told(Closure, torch.optim.LBFGS, max_iter=3, tolerance_grad=-1.0, tolerance_change=-1.0),
    "inside": lambda: told(Inside),
}


def disturbed(run, hooks):
    """All that recording could have changed."""
    gc.collect()
    statistics = torch.cuda.memory_stats()
    dynamo = sys.modules.get("torch._dynamo.utils")
    return {
        "statistics": {
            key: value
            for key, value in statistics.items()
            if not (key.startswith("inactive_split") and key.endswith((".allocated", ".freed")))
        },
        "random": [
            hashlib.sha256(f().numpy().tobytes()).hexdigest() for f in (torch.get_rng_state, torch.cuda.get_rng_state)
        ],
        "hooks": hooks == [id(module._forward_pre_hooks) for module in run.model.modules()],
        "recording": torch._C._cuda_isHistoryEnabled(),
        "functions": type(torch._C._cuda_record_memory_history).__name__,
        "dynamo": {name: dict(values) for name, values in dynamo.counters.items()} if dynamo else {},
    }


def history():
    """What is in the memory history that it keeps itself."""
    traces = torch.cuda.memory._snapshot()["device_traces"]
    return collections.Counter(entry["action"] for entry in traces[0])


def main():
    torch.manual_seed(0)
    kind, steps = sys.argv[1], int(sys.argv[2])
    own_history, _, kind = kind.rpartition("+")
    run = KINDS[kind]()
    hooks, begun_us = [], 0
    if own_history == "always":
        torch.cuda.memory._record_memory_history(max_entries=50_000)
    for number in range(steps):
        loss, figures = run.step(number)
        if number == 1:
            hooks = [id(module._forward_pre_hooks) for module in run.model.modules()]
        if own_history == "meanwhile" and not begun_us and torch._C._cuda_isHistoryEnabled():
            begun_us = time.time_ns() // 1000
            torch.cuda.memory._record_memory_history(max_entries=50_000)
        print(json.dumps({**figures, "loss": loss.item().hex()}), flush=True)
        time.sleep(0.02)
    if own_history == "always":
        print(json.dumps({"history": history(), "recording": torch._C._cuda_isHistoryEnabled()}))
    elif own_history == "meanwhile":
        entries = torch.cuda.memory._snapshot()["device_traces"][0]
        older = sum(entry["time_us"] < begun_us for entry in entries)
        enabled = torch._C._cuda_isHistoryEnabled()
        print(json.dumps({"begun": bool(begun_us), "entries": len(entries), "older": older, "recording": enabled}))
    else:
        print(json.dumps(disturbed(run, hooks), sort_keys=True))


if __name__ == "__main__":
    main()
