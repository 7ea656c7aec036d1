"""Networks of pictures: plain ones, and torchvision's where that is installed."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from .recipe import DEVICE, Losses, Recipe, Training, on_gpu, trained
from .shapes import Patches, Unet, autoencoder, residual


def classes(model: Any, rows: int, side: int) -> Losses:
    """Cross-entropy of a thousand classes over random pictures."""

    def one() -> tuple[Any, Any]:
        x, y = torch.randn(rows, 3, side, side, device=DEVICE), torch.randint(0, 1000, (rows,), device=DEVICE)
        scores = model(x)
        return functional.cross_entropy(scores, y), (x, y, scores)

    return one


def likeness(model: Any, rows: int, side: int) -> Losses:
    """How far pictures come out from how they went in."""

    def one() -> tuple[Any, Any]:
        x = torch.randn(rows, 3, side, side, device=DEVICE)
        out = model(x)
        return functional.mse_loss(out, x), (x, out)

    return one


def classifier(recipe: Recipe, *, width: int = 64, depth: int = 6, rows: int = 32, side: int = 64) -> Training:
    """A residual network."""
    model = on_gpu(lambda: residual(width, depth))
    return trained([model], classes(model, rows, side), recipe)


def torchvision(name: str, recipe: Recipe, rows: int = 4, side: int = 224) -> Training:
    """One of torchvision's classifiers."""
    from torchvision.models import get_model  # type: ignore[import-not-found, unused-ignore]

    # A RegNet computes its widths by tensors, which have no values on torch's meta device.
    plain = name.startswith("regnet")
    model = get_model(name, weights=None).to(DEVICE) if plain else on_gpu(lambda: get_model(name, weights=None))
    told = {"named": name, "batch": rows, "dropout": True, "released_logits": not recipe.holds}
    return trained([model], classes(model, rows, side), Recipe(**{**recipe.__dict__, "known": told}))


def transformer(recipe: Recipe, *, width: int = 384, depth: int = 6, rows: int = 16, patch: int = 16) -> Training:
    """A vision transformer of torch's own attention."""
    model = on_gpu(lambda: Patches(depth, width, patch))
    return trained([model], classes(model, rows, 224), recipe)


def unet(recipe: Recipe, *, width: int = 32, depth: int = 3, rows: int = 8, side: int = 128) -> Training:
    """A U-Net that takes noise away."""
    model = on_gpu(lambda: Unet(width, depth))
    return trained([model], likeness(model, rows, side), recipe)


def compressed(recipe: Recipe, *, width: int = 32, depth: int = 4, rows: int = 32, side: int = 128) -> Training:
    """An autoencoder."""
    model = on_gpu(lambda: autoencoder(width, depth))
    return trained([model], likeness(model, rows, side), recipe)
