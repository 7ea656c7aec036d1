"""How a model is trained: optimizer, precision, micro-batches, and what people do around a step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

DEVICE = "cuda"
Step = Callable[[], None]
#: A batch's loss, and what of it a loop written in one function has names for until the next batch.
Losses = Callable[[], tuple[Any, Any]]

#: By name; "in one kernel" and "one by one" are torch's `fused` and `foreach=False`.
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda found: torch.optim.SGD(found, 0.1),
    "SGD momentum": lambda found: torch.optim.SGD(found, 0.1, momentum=0.9, weight_decay=1e-4),
    "SGD Nesterov": lambda found: torch.optim.SGD(found, 0.1, momentum=0.9, nesterov=True),
    "Adam": torch.optim.Adam,
    "Adam amsgrad": lambda found: torch.optim.Adam(found, amsgrad=True),
    "AdamW": torch.optim.AdamW,
    "AdamW foreach": lambda found: torch.optim.AdamW(found, foreach=True),
    "AdamW fused": lambda found: torch.optim.AdamW(found, fused=True),
    "AdamW for-loop": lambda found: torch.optim.AdamW(found, foreach=False),
    "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam,
    "RMSprop": lambda found: torch.optim.RMSprop(found, momentum=0.9),
    "Adagrad": torch.optim.Adagrad,
    "Adadelta": torch.optim.Adadelta,
    "Adafactor": torch.optim.Adafactor,
}
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Training(NamedTuple):
    """One step of a training, with what it trains; `known` is what a closed form is told of it."""

    models: list[Any]
    optimizers: list[Any]
    step: Step
    known: dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """`precision` is fp32, or bf16 or fp16 by autocast, fp16 with a scaler. `zero` says when gradients go: after the
    step, before the forward or before the backward, or that they stay and are filled with zeros. `holds` says that
    batch and outputs keep their names until the next batch's have come."""

    optimizer: str = "AdamW"
    precision: str = "fp32"
    micro: int = 1
    clipped: bool = False
    zero: str = "after"
    holds: bool = False
    known: dict[str, Any] = field(default_factory=dict)


def on_gpu(make: Callable[[], Any], dtype: torch.dtype = torch.float32) -> Any:
    """A model with the blocks that `.to(DEVICE)` would have left, without the host's time for random weights."""
    with torch.device("meta"):
        model = make()
    return model.to(dtype).to_empty(device=DEVICE)


def trained(models: list[Any], losses: Losses, recipe: Recipe, parameters: Iterable[Any] = ()) -> Training:
    """Trains `parameters`, or all of `models` that can learn."""
    chosen = list(parameters) or [p for model in models for p in model.parameters() if p.requires_grad]
    optimizer = OPTIMIZERS[recipe.optimizer](chosen)
    scaler = torch.amp.GradScaler(DEVICE, enabled=recipe.precision == "fp16")
    dtype = _DTYPES.get(recipe.precision)
    names: list[Any] = []

    def step() -> None:
        if recipe.zero == "before":
            optimizer.zero_grad()
        for _ in range(recipe.micro):
            with torch.autocast(DEVICE, dtype) if dtype is not None else contextlib.nullcontext():
                loss, held = losses()
                loss = loss / recipe.micro
            if recipe.holds:
                names[:] = [held]
            del held
            if recipe.zero == "late":
                optimizer.zero_grad()
            scaler.scale(loss).backward()
        if recipe.clipped:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(chosen, 1.0)
        scaler.step(optimizer)
        scaler.update()
        if recipe.zero in ("after", "zeros"):
            optimizer.zero_grad(set_to_none=recipe.zero == "after")

    return Training(models, [optimizer], step, {**known(recipe), **recipe.known})


def known(recipe: Recipe) -> dict[str, Any]:
    """Of how it is trained, in a closed form's words."""
    name, _, how = recipe.optimizer.partition(" ")
    found: dict[str, Any] = {"optimizer": how if how in ("momentum", "amsgrad") else name.lower()}
    if how == "Nesterov":
        found["optimizer"] = "momentum"
    if how in ("foreach", "fused", "for-loop"):
        found["implementation"] = how
    found["precision"] = recipe.precision if recipe.precision == "fp32" else f"amp-{recipe.precision}"
    return {**found, "accumulation": recipe.micro, "kept_gradients": recipe.zero == "zeros"}
