"""Trainings as people write them, each saying after every step what torch's allocator says of it.

    loops.py KIND STEPS FILE

A line of JSON in FILE for what is trained, then one a step; afterwards the program stays until FILE.over is there.
Knows nothing of memtui.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import pathlib
import sys
import time
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.bench.programs.forecasts import language, pictures, tables
from tests.bench.programs.forecasts.drawn import Make, drawn
from tests.bench.programs.forecasts.recipe import Recipe, Training

#: As many as make up a third of all.
_DRAWN = 17
_PATIENCE_S = 240.0
#: A step of a GPU takes its time, above all the first, which loads the kernels; here none does.
_FIRST_S, _STEP_S = 0.5, 0.03

_OWN: dict[str, Make] = {
    "MLP, Adam": lambda: tables.linear(Recipe("Adam", zero="before")),
    "MLP, L-BFGS": tables.quasi_newton,
    "GPT, AdamW foreach": lambda: language.written_out(Recipe("AdamW foreach", clipped=True)),
    "GPT, AdamW fused": lambda: language.written_out(Recipe("AdamW fused", clipped=True)),
    "GPT, AdamW for-loop": lambda: language.written_out(Recipe("AdamW for-loop", clipped=True)),
    "GPT, SGD": lambda: language.written_out(Recipe("SGD", clipped=True)),
    "GPT, Adafactor": lambda: language.decoder(Recipe("Adafactor")),
    "GPT, Muon and AdamW": language.two_optimizers,
    "GPT, NAdam, zeros stay": lambda: language.decoder(Recipe("NAdam", zero="zeros"), layers=4),
    "GPT, bfloat16 throughout": language.half,
    "GPT, checkpointed": lambda: language.written_out(Recipe(clipped=True), again=True, rows=48),
    "GPT, reentrant checkpoints": lambda: language.decoder(Recipe(), rows=24, again="reentrant"),
    "GPT, 4 micro-batches": lambda: language.written_out(Recipe(micro=4, clipped=True), rows=12),
    "GPT, moving average": language.averaged,
    "GPT, any length": language.lengths,
    "Llama, bf16 autocast": lambda: language.decoder(
        Recipe("AdamW fused", "bf16", clipped=True, holds=True), layers=8, modern=True
    ),
    "LoRA on a frozen GPT": lambda: language.adapted(Recipe(holds=True)),
    "BERT, AdamW": lambda: language.encoder(Recipe(zero="before", holds=True)),
    "BERT, fp16 with a scaler": lambda: language.encoder(Recipe(precision="fp16", clipped=True)),
    "ResNet, SGD momentum": lambda: pictures.classifier(Recipe("SGD momentum")),
    "ResNet, AMP": lambda: pictures.classifier(Recipe("SGD momentum", "fp16")),
    "U-Net, AMP": lambda: pictures.unet(Recipe("Adam", "fp16", zero="late")),
    "LSTM, RMSprop": lambda: tables.sequences(Recipe("RMSprop", zero="late", holds=True)),
    "embeddings, Adagrad": lambda: tables.recommender(Recipe("Adagrad", zero="late", holds=True)),
    "four tasks, any order": tables.tasks,
    "two rivals": tables.rivals,
}
_VISION: dict[str, tuple[str, Recipe]] = {
    "torchvision resnet50, SGD momentum": ("resnet50", Recipe("SGD momentum", holds=True)),
    "torchvision efficientnet_b0, bf16": ("efficientnet_b0", Recipe("AdamW", "bf16", zero="before")),
    "torchvision mobilenet_v3_large, RMSprop": ("mobilenet_v3_large", Recipe("RMSprop", zero="late", holds=True)),
    "torchvision convnext_tiny, AdamW": ("convnext_tiny", Recipe("AdamW", holds=True)),
    "torchvision densenet121, Nesterov": ("densenet121", Recipe("SGD Nesterov", zero="before")),
    "torchvision vgg11_bn, Adam": ("vgg11_bn", Recipe("Adam", zero="before", holds=True)),
    "torchvision vit_b_16, clipped": ("vit_b_16", Recipe("AdamW", clipped=True)),
    "torchvision swin_t, fp16": ("swin_t", Recipe("AdamW", "fp16", clipped=True, holds=True)),
}


def seed() -> int:
    """MEMTUI_BENCH_SEED; without it the day, so that nobody gets used to one."""
    return int(os.environ.get("MEMTUI_BENCH_SEED") or datetime.date.today().strftime("%Y%m%d"))


def kinds() -> dict[str, Make]:
    """Every kind; torchvision's too where that is not installed."""
    vision: dict[str, Make] = {
        name: lambda words=words: pictures.torchvision(*words)  # type: ignore[misc]
        for name, words in _VISION.items()
    }
    return {**_OWN, **vision, **dict(drawn(seed(), _DRAWN))}


def lacking(kind: str) -> bool:
    """Whether a kind needs torchvision, which is not here."""
    return "torchvision" in kind and importlib.util.find_spec("torchvision") is None


def facts(training: Training) -> dict[str, Any]:
    """How much is trained, and how."""
    parameters = {each for model in training.models for each in model.parameters()}
    learning = [each.numel() for each in parameters if each.requires_grad]
    counted = {"parameters": sum(each.numel() for each in parameters), "trained": sum(learning)}
    return {**counted, **training.known}


def main() -> None:
    kind, steps, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    training = kinds()[kind]()
    first = register_optimizer_step_pre_hook(lambda *_: time.sleep(_FIRST_S))
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(facts(training)) + "\n")
        for _ in range(steps):
            training.step()
            first.remove()
            figures = {
                "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
            }
            file.write(json.dumps(figures) + "\n")
            file.flush()
            time.sleep(_STEP_S)
    # What is tried out and done again meanwhile takes longer than these steps; a training would go on.
    until = time.monotonic() + _PATIENCE_S
    while not pathlib.Path(f"{path}.over").exists() and time.monotonic() < until:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
