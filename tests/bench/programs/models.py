"""Trainings of many kinds, small, each saying itself which phase it is in."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

#: Called with the phase that begins: "forward", "backward", "optimizer" or "between".
Say = Callable[[str], None]
DEVICE = "cuda"
BATCH = 16


@dataclass
class Training:
    """What is trained, and one step of it."""

    models: list[Any]
    optimizers: list[Any]
    step: Callable[[Say], None]
    sharded: bool = False  # by FSDP


class Block(nn.Module):
    """A transformer's block, its attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        query, key, value = self.qkv(self.first(x)).chunk(3, -1)
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in (query, key, value)
        )
        scores = torch.softmax(query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5, -1)
        x = x + self.out((scores @ value).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.second(x))


class Language(nn.Module):
    """A GPT; `again` recomputes each block in backward."""

    def __init__(self, layers: int = 6, width: int = 256, words: int = 4096, again: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(128, width)
        self.blocks = nn.ModuleList(Block(width, 8) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.register_buffer("mask", torch.ones(128, 128))
        self.again = again

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(self.norm(x))


class Residual(nn.Module):
    """Two convolutions and what goes around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)),
        )

    def forward(self, x: Any) -> Any:
        return functional.relu(x + self.body(x))


class Adapted(nn.Module):
    """A frozen linear layer with a low-rank adapter."""

    def __init__(self, base: Any, rank: int = 8) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features, device=DEVICE))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, device=DEVICE))

    def forward(self, x: Any) -> Any:
        return self.base(x) + x @ self.down.t() @ self.up.t()


def mlp(*widths: int) -> Any:
    """Linear layers with a ReLU between them."""
    layers: list[Any] = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).to(DEVICE)


def classifier(model: Any, optimizer: Any, shape: tuple[int, ...], classes: int = 1000) -> Training:
    """Trains on random pictures or rows."""

    def step(say: Say) -> None:
        say("between")
        x, y = torch.randn(BATCH, *shape, device=DEVICE), torch.randint(0, classes, (BATCH,), device=DEVICE)
        optimizer.zero_grad()
        say("forward")
        loss = functional.cross_entropy(model(x), y)
        say("backward")
        loss.backward()
        say("optimizer")
        optimizer.step()
        say("between")

    return Training([model], [optimizer], step)


def language(model: Any, optimizer: Any, *, parts: int = 1, scaler: Any = None, words: int = 4096) -> Training:
    """Trains on random tokens, with gradients of `parts` batches, in half precision where there is a scaler."""

    def step(say: Say) -> None:
        for _ in range(parts):
            say("between")
            tokens = torch.randint(0, words, (4, 128), device=DEVICE)
            say("forward")
            with torch.autocast("cuda", torch.float16) if scaler is not None else contextlib.nullcontext():
                loss = functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()) / parts
            scaled = loss if scaler is None else scaler.scale(loss)
            say("backward")
            scaled.backward()
        say("optimizer")
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        say("between")
        optimizer.zero_grad()

    return Training([model], [optimizer], step)


def gan() -> Training:
    """Two models with an optimizer each, in turn."""
    maker, judge = mlp(256, 1024, 3072), mlp(3072, 1024, 1)
    making, judging = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())

    def step(say: Say) -> None:
        say("between")
        noise, real = torch.randn(256, 256, device=DEVICE), torch.randn(256, 3072, device=DEVICE)
        judging.zero_grad()
        say("forward")
        made = maker(noise)
        loss = functional.softplus(-judge(real)).mean() + functional.softplus(judge(made.detach())).mean()
        say("backward")
        loss.backward()
        say("optimizer")
        judging.step()
        say("between")
        making.zero_grad()
        say("forward")
        loss = functional.softplus(-judge(made)).mean()
        say("backward")
        loss.backward()
        say("optimizer")
        making.step()
        say("between")

    return Training([maker, judge], [making, judging], step)


def averaged() -> Training:
    """A copy of the model follows it."""
    model = mlp(512, 2048, 1000)
    follower = copy.deepcopy(model).requires_grad_(False)
    training = classifier(model, torch.optim.Adam(model.parameters()), (512,))

    def step(say: Say) -> None:
        training.step(say)
        with torch.no_grad():
            for own, other in zip(follower.parameters(), model.parameters()):
                own.lerp_(other, 0.01)

    return Training([model, follower], training.optimizers, step)


def moving() -> Training:
    """Tensors that are elsewhere at every boundary, by each way that torch has; every one of the same sizes."""
    model = mlp(512, 1024, 1024, 1024, 512)
    linears = model[0], model[2], model[4], model[6]
    optimizer = torch.optim.Adam(model.parameters())
    flat = torch.zeros(2, 1024, device=DEVICE)

    def move() -> None:
        first, second, third, fourth = linears
        with torch.no_grad():
            # The old memory is free at once, and what comes next takes it.
            first.weight.data = first.weight.data.clone()
            second.weight.set_(second.weight.clone())
            third.to("cpu").to(DEVICE)
            second._parameters["bias"].data, third._parameters["bias"].data = flat[0], flat[1]
            second.weight.data, third.weight.data = third.weight.data, second.weight.data  # two of a size change places
        fourth.register_buffer("kept", torch.zeros(1024, 1024, device=DEVICE))

    def move_state() -> None:
        for state in optimizer.state.values():
            state["exp_avg"].data = state["exp_avg"].cpu()
            state["exp_avg"].data = state["exp_avg"].to(DEVICE)

    def step(say: Say) -> None:
        say("between")
        x = torch.randn(BATCH, 512, device=DEVICE)
        optimizer.zero_grad()
        move()
        say("forward")
        loss = model(x).square().mean()
        move_state()
        say("backward")
        loss.backward()
        say("between")
        move()
        move_state()
        for linear in linears:
            linear.weight.grad = linear.weight.grad.clone()
        say("optimizer")
        optimizer.step()
        say("between")
        # Loading exchanges every tensor of the state.
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    return Training([model], [optimizer], step)


def handed_on() -> Training:
    """Memory changes hands: a tensor is moved, and another of its size gets the block that it had."""
    model = mlp(512, 1024, 1024, 512)
    moved, fixed = model[2], model[4]
    optimizer = torch.optim.Adam(model.parameters())
    held: list[Any] = []  # what is let go shows that something has changed

    def displace(tensor: Any) -> Any:
        old, tried = tensor.data_ptr(), []
        tensor.data = tensor.data.clone()
        while not tried or tried[-1].data_ptr() != old:
            tried.append(torch.empty_like(tensor, requires_grad=False))
            assert len(tried) < 100, "nobody gets the old block"
        return tried[-1].detach()

    steps = itertools.count()

    def step(say: Say) -> None:
        number = next(steps)
        say("between")
        optimizer.zero_grad()
        if number % 2:
            held.append(displace(moved.weight))  # the program's own, where the parameter was
        else:
            for parameter in moved.parameters() if optimizer.state else ():
                state = optimizer.state[parameter]
                fixed.register_buffer(f"buffer_{number}_{parameter.dim()}", displace(state["exp_avg"]))
        batch = torch.ones(BATCH, 512, device=DEVICE)
        say("forward")
        loss = model(batch).square().mean()
        say("backward")
        loss.backward()
        say("between")
        if number % 2:
            moved.weight.data = moved.weight.data.clone()  # once more, and the one before is free
        say("optimizer")
        optimizer.step()
        say("between")
        if number < 4:
            held.clear()  # what is kept from a step that was not looked at has no known birth

    return Training([model], [optimizer], step)


def adapted() -> Training:
    """Adapters on a frozen base."""
    model = Language().to(DEVICE).requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(module, Adapted):
                setattr(module, name, Adapted(child))
    return language(model, torch.optim.AdamW([each for each in model.parameters() if each.requires_grad]))


def distributed(bucket_view: bool) -> Training:
    """One rank of DistributedDataParallel."""
    _group()
    wrapped = nn.parallel.DistributedDataParallel(mlp(512, 2048, 2048, 1000), gradient_as_bucket_view=bucket_view)
    return classifier(wrapped, torch.optim.Adam(wrapped.parameters()), (512,))


def sharded() -> Training:
    """One rank of FSDP2."""
    _group()
    from torch.distributed.fsdp import fully_shard

    model = Language().to(DEVICE)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    training = language(model, torch.optim.AdamW(model.parameters()))
    training.sharded = True
    return training


def _group() -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


def _gpt(optimizer: Callable[[Any], Any] = torch.optim.AdamW, *, again: bool = False, **how: Any) -> Training:
    model = Language(again=again).to(DEVICE)
    return language(model, optimizer(model.parameters()), **how)


def _rows(optimizer: Callable[[Any], Any]) -> Training:
    model = mlp(1024, 4096, 4096, 1000)
    return classifier(model, optimizer(model.parameters()), (1024,))


def _resnet() -> Training:
    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 7, 4, 3), nn.BatchNorm2d(32), nn.ReLU()),
        *(Residual(32) for _ in range(4)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 1000)),
    ).to(DEVICE)
    return classifier(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), (3, 64, 64))


class _Vision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 192, 8, 8)
        self.blocks = nn.Sequential(*(Block(192, 6) for _ in range(4)))
        self.head = nn.Linear(192, 1000)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


def _vit() -> Training:
    model = _Vision().to(DEVICE)
    return classifier(model, torch.optim.Adam(model.parameters()), (3, 64, 64))


def _compiled(**how: Any) -> Training:
    model = Language().to(DEVICE)
    training = language(torch.compile(model, **how), torch.optim.AdamW(model.parameters()))
    return Training([model], training.optimizers, training.step)


def _graphed() -> Training:
    """Forward and backward are replayed from CUDA graphs; their memory lies in a pool of the graphs' own."""
    model = Language().to(DEVICE)
    tokens = torch.randint(0, 4096, (4, 128), device=DEVICE)
    replayed = torch.cuda.make_graphed_callables(model, (tokens,))
    return language(replayed, torch.optim.AdamW(model.parameters()))


KINDS: dict[str, Callable[[], Training]] = {
    "MLP, SGD": lambda: _rows(lambda each: torch.optim.SGD(each, 0.1)),
    "MLP, momentum": lambda: _rows(lambda each: torch.optim.SGD(each, 0.1, momentum=0.9)),
    "MLP, Adam foreach": lambda: _rows(torch.optim.Adam),
    "MLP, Adam fused": lambda: _rows(lambda each: torch.optim.Adam(each, fused=True)),
    "MLP, Adafactor": lambda: _rows(torch.optim.Adafactor),
    "GPT, AdamW": _gpt,
    "GPT, checkpointed": lambda: _gpt(again=True),
    "GPT, compiled": _compiled,
    "GPT, compiled by aot_eager": lambda: _compiled(backend="aot_eager"),
    "GPT, compiled, CUDA graphs": lambda: _compiled(mode="reduce-overhead"),
    "GPT, CUDA graphs": _graphed,
    "GPT, accumulated": lambda: _gpt(parts=4),
    "GPT, autocast, scaler": lambda: _gpt(scaler=torch.amp.GradScaler("cuda")),
    "ResNet, momentum": _resnet,
    "ViT, Adam": _vit,
    "LoRA on a frozen base": adapted,
    "GAN": gan,
    "EMA copy": averaged,
    "MLP, tensors that move": moving,
    "MLP, memory changes hands": handed_on,
    "DDP": lambda: distributed(False),
    "DDP, bucket views": lambda: distributed(True),
    "FSDP2": sharded,
}
