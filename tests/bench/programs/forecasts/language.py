"""Language models, trained as people do."""

from __future__ import annotations

import copy
import random
from typing import Any, Optional

import torch
from torch import nn
from torch.nn import functional

from tests.bench.programs.models import Adapted, Language

from .recipe import DEVICE, Losses, Recipe, Training, known, on_gpu, trained
from .shapes import Decoder, Encoder

WORDS = 16_000


def tokens(rows: int, length: int) -> Any:
    """A batch."""
    return torch.randint(0, WORDS, (rows, length + 1), device=DEVICE)


def loss_of(model: Any, batch: Any) -> tuple[Any, Any]:
    """Cross-entropy of the next word, and the logits."""
    logits = model(batch[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()), logits


def losses(model: Any, rows: int, length: int = 128) -> Losses:
    """Of the next word in random batches."""

    def one() -> tuple[Any, Any]:
        batch = tokens(rows, length)
        loss, logits = loss_of(model, batch)
        return loss, (batch, logits)

    return one


def written_out(recipe: Recipe, *, again: bool = False, rows: int = 24) -> Training:
    """A GPT of 29 million parameters, its attention written out."""
    model = on_gpu(lambda: Language(layers=8, width=512, words=WORDS, again=again))
    return trained([model], losses(model, rows), _with(recipe, shape(8, 512, again=again), rows, 128))


def shape(layers: int, width: int, *, again: bool = False, tied: bool = False, modern: bool = False) -> dict[str, Any]:
    """In a closed form's words."""
    plain: dict[str, Any] = {
        "layers": layers,
        "hidden": width,
        "heads": 8,
        "kv_heads": 8,
        "head_dim": width // 8,
        "inner": 8 * width // 3 if modern else 4 * width,
        "vocabulary": WORDS,
        "positions": 512 if tied else 128,
        "fused_qkv": True,
        "tied": tied,
    }
    if modern:
        unbiased = {"qkv_bias": False, "output_bias": False, "mlp_bias": False}
        plain |= {**unbiased, "gated": True, "activation": "silu", "norm": "rms", "norm_vectors": 1}
    return {"transformer": plain, "flash": tied, "checkpointing": "full" if again else "none", "dropout": False}


def _with(recipe: Recipe, told: dict[str, Any], rows: int, length: int) -> Recipe:
    told = {**told, "batch": rows, "sequence": length, "released_logits": not recipe.holds}
    return Recipe(**{**recipe.__dict__, "known": told})


def decoder(
    recipe: Recipe,
    *,
    layers: int = 6,
    width: int = 512,
    rows: int = 8,
    length: int = 256,
    modern: bool = False,
    again: Optional[str] = None,
) -> Training:
    """A GPT or a Llama with torch's own attention."""
    model = on_gpu(lambda: Decoder(layers, width, WORDS, modern, again))
    told = shape(layers, width, again=again is not None, tied=True, modern=modern)
    return trained([model], losses(model, rows, length), _with(recipe, told, rows, length))


def encoder(recipe: Recipe, *, layers: int = 6, width: int = 384, rows: int = 16, length: int = 128) -> Training:
    """A BERT that learns masked words; the end of each row is padding."""
    model = on_gpu(lambda: Encoder(layers, width, WORDS))

    def one() -> tuple[Any, Any]:
        batch = tokens(rows, length)[:, :-1]
        padded = torch.arange(length, device=DEVICE).expand(rows, length) >= length - 8
        logits = model(batch, padded)
        hidden = batch.masked_fill(torch.rand(rows, length, device=DEVICE) > 0.15, -100)
        return functional.cross_entropy(logits.flatten(0, 1), hidden.flatten(), ignore_index=-100), (batch, logits)

    told = shape(layers, width)
    told["transformer"] |= {"positions": 512, "masked_head": True, "embedding_norm": True, "final_norm": False}
    told["transformer"] |= {"hidden_dropout": 0.1, "attention_dropout": 0.1, "embedding_dropout": 0.1}
    return trained([model], one, _with(recipe, {**told, "flash": True, "dropout": True}, rows, length))


def adapted(recipe: Recipe) -> Training:
    """Adapters on a frozen GPT."""
    model = on_gpu(lambda: Language(layers=8, width=512, words=WORDS)).requires_grad_(False)
    for module in list(model.blocks.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(module, Adapted):
                setattr(module, name, Adapted(child))
    told = {**shape(8, 512), "lora_rank": 8, "lora_targets": ("qkv", "o", "up", "down")}
    return trained([model], losses(model, 16), _with(recipe, told, 16, 128))


def half() -> Training:
    """A GPT that is bfloat16 throughout, and so is its optimizer's state."""
    model = on_gpu(lambda: Decoder(6, 512, WORDS), torch.bfloat16)
    recipe = _with(Recipe("SGD momentum", clipped=True), {**shape(6, 512, tied=True), "precision": "bf16"}, 16, 256)
    return trained([model], losses(model, 16, 256), recipe)


def averaged() -> Training:
    """A GPT with a moving average of its weights, and a loss that is kept for printing."""
    model = on_gpu(lambda: Language(layers=6, width=384, words=WORDS))
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters())
    kept: list[Any] = []

    def step() -> None:
        loss = loss_of(model, tokens(16, 128))[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mean, now in zip(average.parameters(), model.parameters()):
                mean.lerp_(now, 0.01)
        kept[:] = [loss]

    return Training([model], [optimizer], step, _with(Recipe(), {**known(Recipe()), **shape(6, 384)}, 16, 128).known)


def lengths() -> Training:
    """A GPT whose batches are of another length each, up to 128."""
    model = on_gpu(lambda: Language(layers=6, width=384, words=WORDS))
    drawn = random.Random(7)

    def one() -> tuple[Any, Any]:
        return loss_of(model, tokens(16, drawn.randrange(32, 129)))[0], None

    return trained([model], one, _with(Recipe(zero="late"), shape(6, 384), 16, 128))


def two_optimizers() -> Training:
    """A GPT: Muon for its matrices, AdamW for the rest."""
    model = on_gpu(lambda: Decoder(6, 512, WORDS))
    matrices = [each for each in model.layers.parameters() if each.ndim == 2]
    of_matrices = {id(each) for each in matrices}
    others = [each for each in model.parameters() if id(each) not in of_matrices]
    optimizers: list[Any] = [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(others)]
    one = losses(model, 8, 256)

    def step() -> None:
        one()[0].backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    recipe = _with(Recipe(), {**known(Recipe()), **shape(6, 512, tied=True), "optimizer": "muon"}, 8, 256)
    return Training([model], optimizers, step, recipe.known)
