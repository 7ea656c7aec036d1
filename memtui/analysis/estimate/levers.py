"""What would lower a peak, by how much, and at what price: the same closed forms with one thing changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .architecture import Transformer
from .build import estimate
from .optimizers import RECIPES, default_implementation
from .precision import PRECISIONS
from .request import Contradiction, Freeze, Request
from .terms import Estimate

#: A lever that saves less than this share of the peak is not worth its price.
_LEAST_SHARE = 0.02
_RANK, _DEVICES = 16, 8


@dataclass(frozen=True)
class Lever:
    """One change, the peak that it leaves, which may be a lower bound as the one before, and what it costs."""

    words: str
    peak_bytes: int
    price: str
    lower_bound: bool


def levers(request: Request) -> tuple[Lever, ...]:
    """Those that lower the peak, the strongest first; what is unknown must be unknown before and after."""
    now = estimate(request)
    found = []
    for words, price, changed in _changes(request):
        try:
            then = estimate(changed)
        except Contradiction:
            continue
        if _unknown(then) == _unknown(now) and then.peak.bytes <= (1 - _LEAST_SHARE) * now.peak.bytes:
            found.append(Lever(words, then.peak.bytes, price, not then.complete))
    return tuple(sorted(found, key=lambda lever: lever.peak_bytes))


def _unknown(found: Estimate) -> set[str]:
    return {term.name for term in found.terms if term.bytes is None}


def _changes(request: Request) -> Iterator[tuple[str, str, Request]]:
    yield from _of_activations(request)
    yield from _of_state(request)
    yield from _of_devices(request)


def _of_activations(request: Request) -> Iterator[tuple[str, str, Request]]:
    batch = request.batch or 1
    if batch > 1:
        smaller = replace(request, batch=batch // 2, accumulation=2 * request.accumulation)
        yield f"micro-batches of {batch // 2}, twice as many", "more passes a step", smaller
    if isinstance(request.model, Transformer):
        if request.checkpointing != "full":
            yield "full checkpointing", "a second forward pass", replace(request, checkpointing="full")
        if not request.flash:
            yield "flash attention", "another kernel", replace(request, flash=True)
        if request.model.classes is None and not request.released_logits:
            yield "logits released before backward", "a del in the loop", replace(request, released_logits=True)
    if request.precision.name in ("fp32", "tf32"):
        yield "bf16 autocast", "other numerics", replace(request, precision=PRECISIONS["amp-bf16"])


def _of_state(request: Request) -> Iterator[tuple[str, str, Request]]:
    recipe = request.optimizer
    how = request.implementation or default_implementation(recipe, request.precision)
    if how == "foreach" and recipe.torch_class in ("Adam", "AdamW", "SGD", "Adagrad"):
        yield "fused optimizer", "one kernel's rounding", replace(request, implementation="fused")
    if recipe.name in ("adam", "adamw") and not request.precision.master:
        yield "8-bit AdamW", "another library, other numerics", replace(request, optimizer=RECIPES["adamw8bit"])
    if isinstance(request.model, Transformer) and not request.lora_rank and request.freeze == Freeze():
        yield f"LoRA of rank {_RANK} on q and v", "less that learns", replace(request, lora_rank=_RANK)
    if request.kept_gradients:
        yield "gradients set to None", "none", replace(request, kept_gradients=False)


def _of_devices(request: Request) -> Iterator[tuple[str, str, Request]]:
    if request.gpus == 1:
        for stage in (2, 3):
            several = replace(request, zero=stage, gpus=_DEVICES)
            yield f"ZeRO-{stage} on {_DEVICES} devices", "devices, communication", several
        return
    if request.zero == 0 and not request.bucket_view:
        yield "gradient_as_bucket_view", "gradients cannot be detached", replace(request, bucket_view=True)
    for stage in range(request.zero + 1, 4):
        yield f"ZeRO-{stage}", "communication", replace(request, zero=stage)
