"""Small loops of every kind; each ends with "steps N", the optimizer steps (or cycles of them) that it has made.

    kinds.py KIND

What is only there for a moment waits a little, so that a look every tenth of a second sees it. Knows nothing of memtui.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS = 12
SEEN_S = 0.25


class Slow(nn.Module):
    """Takes its time where gradients are off."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, x):
        if not torch.is_grad_enabled():
            time.sleep(self.seconds)
        return x


def mlp(width=256, slow=SEEN_S):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 64), Slow(slow)).to(DEVICE)


def batch(requires_grad=False, rows=256):
    return torch.randn(rows, 64, device=DEVICE, requires_grad=requires_grad)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def step(model, optimizer, run=None, micro=1):
    for _ in range(micro):
        (run or model)(batch()).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def plain():
    model = mlp()
    optimizer = adam(model)
    for _ in range(STEPS):
        step(model, optimizer)


def accumulated():
    """With an evaluation in the middle of each fourth step."""
    model = mlp()
    optimizer = adam(model)
    for number in range(STEPS):
        model(batch()).pow(2).mean().backward()
        if number % 4 == 3:
            with torch.no_grad():
                model(batch())
        step(model, optimizer, micro=2)


class Holder(nn.Module):
    """Holds what is called and is not called itself, like a LightningModule."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([mlp(), mlp()])

    def loss(self):
        time.sleep(SEEN_S / 2)
        outputs = [part(batch()) for part in self.parts]
        time.sleep(SEEN_S / 2)
        return sum(output.pow(2).mean() for output in outputs)


def held():
    model = Holder()
    optimizer = adam(model)
    for _ in range(STEPS):
        model.loss().backward()
        optimizer.step()
        optimizer.zero_grad()


def two_optimizers():
    model = mlp()
    optimizers = [torch.optim.SGD(part.parameters(), lr=1e-3) for part in (model[0], model[2])]
    for _ in range(STEPS):
        for optimizer in optimizers:
            step(model, optimizer)


def gan():
    generator, critic = mlp(slow=0.12), mlp()
    of_generator, of_critic = adam(generator), adam(critic)
    for _ in range(STEPS):
        for _ in range(3):
            with torch.no_grad():
                made = generator(batch())
            (critic(batch()).mean() - critic(made).mean()).backward()
            of_critic.step()
            of_critic.zero_grad()
        (-critic(generator(batch())).mean()).backward()
        of_generator.step()
        of_generator.zero_grad()


def scaled():
    """Every third step is skipped by the scaler: its gradients are infinite."""
    model = mlp()
    optimizer, scaler = adam(model), torch.amp.GradScaler(DEVICE, init_scale=2.0)
    made = 0
    for number in range(STEPS):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = model(batch()).float().pow(2).mean()
        bad = number % 3 == 2
        scaler.scale(loss * float("inf") if bad else loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        made += not bad
    return made


def checkpointed():
    model = mlp()
    optimizer = adam(model)
    for _ in range(STEPS):
        step(model, optimizer, lambda x: checkpoint(model, x, use_reentrant=False))


def checkpointed_reentrant():
    """The whole model runs without gradients first, and with them inside backward."""
    model = mlp(slow=0.12)
    optimizer = adam(model)
    for _ in range(STEPS):
        checkpoint(model, batch(requires_grad=True), use_reentrant=True).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def compiled():
    model = mlp(slow=0)
    optimizer, run = adam(model), torch.compile(model, backend="aot_eager")
    for _ in range(STEPS):
        step(model, optimizer, run)


def optimizer_in_backward():
    model = mlp()
    optimizers = {parameter: torch.optim.SGD([parameter], lr=1e-3) for parameter in model.parameters()}

    def hook(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    for _ in range(STEPS):
        model(batch()).pow(2).mean().backward()


def closure():
    model = mlp(16)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def evaluate():
        optimizer.zero_grad()
        loss = model(batch()).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(evaluate)


def inference():
    model = mlp()
    with torch.inference_mode():
        for _ in range(STEPS + 1):
            model(batch())


def evaluated():
    model = mlp()
    optimizer = adam(model)
    for epoch in range(3):
        # The first of them is the largest so far.
        model(batch(rows=4096 * (epoch + 1))).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        for _ in range(STEPS // 3 - 1):
            step(model, optimizer)
        with torch.inference_mode():
            for _ in range(3):
                model(batch())


def validated(lasting=0.0):
    """Quick steps, few of which are read; then a larger batch is judged, by the first call without gradients."""
    model = mlp(1024, slow=0)
    optimizer, made = adam(model), 0
    for epoch in range(3):
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            step(model, optimizer)
            made += 1
        with torch.no_grad():
            model(batch(rows=8192 << epoch))
            end = time.monotonic() + lasting
            while time.monotonic() < end:
                model(batch())
    for _ in range(STEPS):
        step(model, optimizer)
    time.sleep(SEEN_S)
    step(model, optimizer)
    return made + STEPS + 1


def validated_long():
    return validated(0.9)


def validated_last():
    """It ends with its evaluation."""
    model = mlp(1024, slow=0)
    optimizer = adam(model)
    for _ in range(STEPS):
        step(model, optimizer)
        time.sleep(0.05)
    with torch.no_grad():
        model(batch(rows=8192))


def short():
    """Steps of a millisecond by the hundred, an evaluation among them, and at last one step that takes its time."""
    model = nn.Sequential(nn.Linear(8, 8), Slow(SEEN_S))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    made = 0

    def some(seconds):
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            count += 1
        return count

    made += some(1.5)
    with torch.no_grad():
        model(torch.randn(4, 8))
    made += some(0.7)
    loss = model(torch.randn(4, 8)).sum()
    time.sleep(2 * SEEN_S)
    loss.backward()
    optimizer.step()
    return made + 1


def several_evaluated():
    """Two roots, one after the other, between steps and within one."""
    first, second = mlp(), mlp()
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=1e-3)
    for number in range(STEPS):
        if number % 4 == 0:
            with torch.no_grad():
                second(first(batch()))
        loss = second(first(batch())).pow(2).mean()
        loss.backward()
        if number % 4 == 1:
            with torch.no_grad():
                second(first(batch()))
        optimizer.step()
        optimizer.zero_grad()


def averaged():
    model = mlp()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = adam(model)
    for number in range(STEPS):
        step(model, optimizer)
        average.update_parameters(model)
        if number % 4 == 3:
            with torch.no_grad():
                average(batch())


def saved():
    """A tensor that takes a while, saved and loaded between steps."""
    model = mlp()
    optimizer = adam(model)
    large = torch.zeros(64 << 20)
    for number in range(STEPS):
        step(model, optimizer)
        if number % 4 != 3:
            continue
        end = time.monotonic() + 2 * SEEN_S
        while time.monotonic() < end:
            with tempfile.TemporaryFile() as file:
                torch.save([large, copy.deepcopy(optimizer.state_dict())], file)
                file.seek(0)
                torch.load(file, weights_only=True)


KINDS = {name: value for name, value in vars().items() if callable(value) and value.__module__ == __name__}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(1)
    made = KINDS[sys.argv[1]]()
    time.sleep(SEEN_S)
    if DEVICE == "cuda":
        print("peak", torch.cuda.max_memory_allocated())
    print("steps", STEPS if made is None else made, flush=True)
