"""Trainings chosen by a seed: family, size, optimizer, precision, and how the loop is written."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

from . import language, pictures, tables
from .recipe import OPTIMIZERS, Recipe, Training

Make = Callable[[], Training]
#: Of each of torchvision's families one that is quick.
VISION = (
    *("convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "maxvit_t", "mnasnet1_0"),
    *("mobilenet_v2", "mobilenet_v3_large", "regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnet50"),
    *("resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_0", "swin_t", "vgg11", "vgg16_bn", "vit_b_16"),
)
#: When gradients go; how often each is drawn is a guess at how people write.
_ZERO = ("after", "after", "after", "before", "before", "late", "late", "zeros")


def drawn(seed: int, count: int) -> Iterator[tuple[str, Make]]:
    """So many trainings of a seed, by names that tell what they are; the families take turns."""
    order = random.Random(seed).sample(_FAMILIES, len(_FAMILIES))
    for number in range(count):
        pick = random.Random(f"{seed}/{number}")
        recipe = _recipe(pick)
        what, make = order[number % len(order)](pick, recipe)
        yield f"drawn {number + 1}: {what}, {_words(recipe)}", make


def _recipe(pick: random.Random) -> Recipe:
    micro = pick.choice((1, 1, 1, 2, 4))
    return Recipe(
        optimizer=pick.choice(tuple(OPTIMIZERS)),
        precision=pick.choice(("fp32", "bf16", "fp16")),
        micro=micro,
        clipped=pick.random() < 0.4,
        zero=pick.choice(_ZERO if micro == 1 else [when for when in _ZERO if when != "late"]),
        holds=pick.random() < 0.5,
    )


def _words(recipe: Recipe) -> str:
    parts = [recipe.optimizer, recipe.precision]
    if recipe.micro > 1:
        parts.append(f"{recipe.micro} micro-batches")
    if recipe.clipped:
        parts.append("clipped")
    gone = {"after": "", "before": "zeroed before forward", "late": "zeroed before backward", "zeros": "zeros stay"}
    return ", ".join(part for part in (*parts, gone[recipe.zero], "names held" * recipe.holds) if part)


def _sized(what: str, make: Callable[..., Training], recipe: Recipe, **sizes: Any) -> tuple[str, Make]:
    shown = " ".join(f"{name} {value}" for name, value in sizes.items() if value is not None)
    return f"{what} {shown}", lambda: make(recipe, **sizes)


def _gpt(pick: random.Random, recipe: Recipe) -> tuple[str, Make]:
    sizes = {"layers": pick.randint(3, 8), "width": pick.choice((256, 384, 512)), "rows": pick.choice((4, 8, 12))}
    how = {"length": pick.choice((128, 192, 256)), "again": pick.choice((None, None, "reentrant", "plain"))}
    modern = pick.random() < 0.5
    make = functools.partial(language.decoder, modern=modern)
    return _sized("Llama" if modern else "GPT", make, recipe, **sizes, **how)


def _bert(pick: random.Random, recipe: Recipe) -> tuple[str, Make]:
    sizes = {"layers": pick.randint(3, 8), "width": pick.choice((256, 384, 512)), "rows": pick.choice((8, 16))}
    return _sized("BERT", language.encoder, recipe, length=pick.choice((64, 128, 192)), **sizes)


def _residual(pick: random.Random, recipe: Recipe) -> tuple[str, Make]:
    sizes = {"width": pick.choice((32, 64, 96)), "depth": pick.randint(3, 10), "rows": pick.choice((16, 32, 64))}
    return _sized("ResNet", pictures.classifier, recipe, side=64, **sizes)


def _vision(pick: random.Random, recipe: Recipe) -> tuple[str, Make]:
    name, rows = pick.choice(VISION), pick.choice((4, 8, 16))
    return f"torchvision {name} rows {rows}", lambda: pictures.torchvision(name, recipe, rows)


def _patches(pick: random.Random, recipe: Recipe) -> tuple[str, Make]:
    sizes = {"width": pick.choice((192, 384, 512)), "depth": pick.randint(4, 8), "rows": pick.choice((16, 32))}
    return _sized("ViT", pictures.transformer, recipe, patch=pick.choice((16, 32)), **sizes)


def _unet(pick: random.Random, recipe: Recipe) -> tuple[str, Make]:
    sizes = {"width": pick.choice((16, 32, 48)), "depth": pick.randint(2, 4), "rows": pick.choice((8, 16))}
    return _sized("U-Net", pictures.unet, recipe, side=128, **sizes)


def _compressed(pick: random.Random, recipe: Recipe) -> tuple[str, Make]:
    sizes = {"width": pick.choice((32, 64)), "depth": pick.randint(3, 5), "rows": pick.choice((32, 64))}
    return _sized("autoencoder", pictures.compressed, recipe, side=128, **sizes)


def _linear(pick: random.Random, recipe: Recipe) -> tuple[str, Make]:
    inner = [pick.choice((1024, 2048, 4096)) for _ in range(pick.randint(2, 5))]
    return _sized("MLP", tables.linear, recipe, widths=(512, *inner, 1000), rows=pick.choice((1024, 4096)))


def _lstm(pick: random.Random, recipe: Recipe) -> tuple[str, Make]:
    sizes = {"width": pick.choice((512, 1024)), "depth": pick.randint(1, 3), "rows": pick.choice((16, 32))}
    return _sized("LSTM", tables.sequences, recipe, length=pick.choice((32, 64)), **sizes)


def _tables(pick: random.Random, recipe: Recipe) -> tuple[str, Make]:
    sizes = {"width": pick.choice((32, 64)), "entries": pick.choice((50_000, 100_000))}
    return _sized("DLRM", tables.recommender, recipe, rows=pick.choice((1024, 4096, 16_384)), **sizes)


_FAMILIES = (_gpt, _bert, _residual, _vision, _patches, _unet, _compressed, _linear, _lstm, _tables)
