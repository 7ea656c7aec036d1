"""Which training each published figure is of, as far as its row says; what it leaves open is taken as written here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from memtui.analysis.estimate.architecture import Transformer, count, weights
from memtui.analysis.estimate.build import estimate
from memtui.analysis.estimate.convolutional import find_convnet
from memtui.analysis.estimate.named import find_named
from memtui.analysis.estimate.optimizers import RECIPES
from memtui.analysis.estimate.precision import PRECISIONS
from memtui.analysis.estimate.request import Request
from memtui.analysis.estimate.terms import STEP, Estimate, category_bytes

#: What the row's own first line says that CUDA's context took.
_BERT_CONTEXT = 1343 * 2**20


@dataclass(frozen=True)
class Row:
    """A published figure, by its id, and what there is to set against it. `outside_bytes` is part of the figure."""

    id: str
    what: str
    request: Request
    measure: Callable[[Estimate], int] = lambda found: found.peak.bytes
    outside_bytes: int = 0


def peaks() -> list[Row]:
    """Peaks of whole trainings."""
    return [*_gpt(), *_vit(), *_bert(), *_course(), *_images(), *_llama(), *_adapters()]


def without_shapes() -> list[Row]:
    """The same peaks of those that train all of a language model, from its number of parameters."""
    found = []
    for row in peaks():
        model, request = row.request.model, row.request
        if isinstance(model, Transformer) and not model.patch and not request.lora_rank:
            plain = replace(request, model=None, parameters=count(weights(model)), checkpointing="none")
            # What takes shapes, and runs whose activations are computed again, cannot be said without.
            if request.checkpointing == "none" and request.optimizer.rule != "factored":
                found.append(replace(row, request=plain))
    return found


def parts() -> list[Row]:
    """Categories, which take no account of the batch, and one operation."""
    seven = Request(parameters=7_500_000_000, precision=PRECISIONS["bf16-mixed"], gpus=64)
    stored = [
        Row(f"G{196 + stage}", f"ZeRO-{stage}, 7.5 B on 64", replace(seven, zero=stage), _stored) for stage in range(4)
    ]
    course = _course_request(2560, 10240, 32, 32, 4, 512, "amp-bf16")
    vit = replace(_vit_request(), batch=1)
    gemma = Request(_named("gemma-2-2b"), 0, 1, 8192, PRECISIONS["bf16"], released_logits=True)
    return [
        *stored,
        Row("G025", "ViT-L parameters", vit, lambda found: category_bytes(found.terms, "parameters")),
        Row("G027", "ViT-L optimizer state", vit, lambda found: category_bytes(found.terms, "optimizer state")),
        Row("G044", "3.4 B parameters", course, lambda found: category_bytes(found.terms, "parameters")),
        Row("G047", "3.4 B after a step", course, _stored),
        Row("G107", "loss of 8,192 tokens", gemma, lambda found: _loss(found, "end of forward")),
        Row("G109", "loss and its backward", gemma, lambda found: _loss(found, "backward: loss")),
    ]


def _stored(found: Estimate) -> int:
    return sum(category_bytes(found.terms, name) for name in ("parameters", "gradients", "optimizer state"))


def _loss(found: Estimate, phase: str) -> int:
    named = ("logits", "log-softmax", "gradients of the loss")
    return sum(term.bytes or 0 for term in found.terms if phase in term.phases and term.name.startswith(named))


def _named(name: str) -> Transformer:
    model = find_named(name)
    assert model is not None
    return model


def _gpt() -> list[Row]:
    """GPT-2 small written by hand: untied head, no bias of q, k, v, norms and GELU of single operations."""
    native = replace(_named("gpt2"), fused_qkv=False, qkv_bias=False, tied=False, loss_fp32=False, activation="gelu")
    written = replace(native, norm="written", activation="gelu_new")
    # Its loss is taken in a function of its own, whose logits go when that returns.
    base = Request(written, batch=8, sequence=1024, flash=False, released_logits=True)
    half = replace(base, precision=PRECISIONS["bf16"])
    flash = replace(half, model=native, flash=True)
    larger = replace(flash, model=replace(native, vocabulary=50304))
    return [
        *(Row(f"G00{place}", "GPT-2 124M fp32", base) for place in (1, 2, 3)),
        Row("G004", "GPT-2 124M fp32, fused", replace(base, implementation="fused")),
        Row("G006", "GPT-2 124M bf16", half),
        Row("G007", "GPT-2 124M bf16, kernels", replace(half, model=native)),
        Row("G008", "GPT-2 124M bf16, flash", flash),
        Row("G009", "GPT-2 124M, compiled", flash),
        Row("G010", "GPT-2 124M, compiled, 50304", larger),
        Row("G011", "GPT-2 124M, compiled, batch 32", replace(larger, batch=32)),
        Row("G012", "GPT-2 124M, DDP, batch 32", replace(larger, batch=32, gpus=4)),
    ]


def _vit_request() -> Request:
    return Request(replace(_named("vit-l-16"), classes=10), batch=64, optimizer=RECIPES["adam"])


def _vit() -> list[Row]:
    base = _vit_request()
    half = replace(base, precision=PRECISIONS["bf16"])
    return [
        Row("G017", "ViT-L fp32, batch 64", base),
        Row("G018", "ViT-L fp32, Fabric", base),
        Row("G019", "ViT-L fp16 autocast", replace(base, precision=PRECISIONS["amp-fp16"])),
        Row("G020", "ViT-L bf16", half),
        Row("G022", "ViT-L bf16, 4 micro-batches", replace(half, batch=16, accumulation=4)),
    ]


def _bert() -> list[Row]:
    """A classifier, with attention and optimizer written out and gradients zeroed in place, as it was then."""
    model = replace(_named("bert-large"), classes=2, pooler=True, masked_head=False)
    base = Request(model, batch=4, sequence=512, flash=False, implementation="for-loop", kept_gradients=True)
    small = replace(base, batch=1, accumulation=4)
    checkpoints = replace(small, checkpointing="full")
    half = replace(checkpoints, precision=PRECISIONS["amp-fp16"])
    rows = (
        ("G033", "BERT-large fp32", base),
        ("G034", "BERT-large, 4 micro-batches", small),
        ("G035", "BERT-large, and checkpoints", checkpoints),
        ("G037", "BERT-large, and fp16 autocast", half),
        ("G038", "BERT-large, Adafactor", replace(base, optimizer=RECIPES["adafactor"])),
        ("G039", "BERT-large, all and Adafactor", replace(half, optimizer=RECIPES["adafactor"])),
        ("G040", "BERT-large, 8-bit Adam", replace(base, optimizer=RECIPES["adamw8bit"])),
    )
    return [Row(name, what, request, outside_bytes=_BERT_CONTEXT) for name, what, request in rows]


def _course_request(hidden: int, inner: int, layers: int, heads: int, batch: int, seq: int, precision: str) -> Request:
    llama = replace(_named("llama-2-7b"), name="course", hidden=hidden, inner=inner, layers=layers, vocabulary=10_000)
    model = replace(llama, heads=heads, kv_heads=heads, head_dim=hidden // heads, loss_fp32=False)
    return Request(model, 0, batch, seq, PRECISIONS[precision], implementation="for-loop", flash=False)


def _before_first_step(found: Estimate) -> int:
    passes = [phase for phase in found.phases if phase.name != STEP]
    return max(phase.bytes - phase.bytes_by_category["optimizer state"] for phase in passes)


def _course() -> list[Row]:
    large = _course_request(2560, 10240, 32, 32, 4, 512, "amp-bf16")
    sharded = replace(large, zero=1, gpus=2)
    return [
        Row("G046", "3.4 B, first passes", large, _before_first_step),
        Row("G048", "3.4 B, step", large, lambda found: found.phases[-1].bytes),
        Row("G050", "3.4 B, sharded, first passes", large, _before_first_step),
        Row("G052", "3.4 B, sharded, step", sharded, lambda found: found.phases[-1].bytes),
        Row("G089", "0.4 B, taken as fp32", _course_request(1024, 4096, 24, 16, 4, 128, "fp32")),
        Row("G098", "3.4 B, taken as fp32", _course_request(2560, 10240, 32, 32, 4, 256, "fp32")),
        Row("G100", "0.1 B, fp32, passes", _course_request(768, 3072, 12, 12, 32, 256, "fp32"), _before_first_step),
    ]


def _images() -> list[Row]:
    resnet = find_convnet("resnet-50")
    assert resnet is not None
    return [
        Row("G104", "ResNet-50, taken as SGD", Request(resnet, batch=128, optimizer=RECIPES["sgd"])),
        Row("G105", "ViT, taken as B/16, SGD", Request(_named("vit-b-16"), batch=128, optimizer=RECIPES["sgd"])),
    ]


def _llama() -> list[Row]:
    base = Request(_named("llama-3.2-3b"), batch=2, sequence=4096, precision=PRECISIONS["bf16"])
    return [Row("G125", "Llama 3.2 3B bf16", base), Row("G126", "Llama 3.2 3B, compiled", base)]


def _adapters() -> list[Row]:
    """Rank and targets are not in the rows: 8, of q and v."""
    rows = (
        ("G151", "gemma-2b", 2),
        ("G157", "llama-3-8b", 1),
        ("G159", "mistral-7b", 2),
        ("G171", "tinyllama-1.1b", 8),
    )
    half = PRECISIONS["bf16"]
    return [
        Row(name, f"{model}, LoRA", Request(_named(model), 0, batch, 512, half, lora_rank=8))
        for name, model, batch in rows
    ]


def estimated_bytes(row: Row) -> int:
    """What the closed form gives for a row."""
    return row.measure(estimate(row.request)) + row.outside_bytes
