"""An estimate from a request."""

from __future__ import annotations

from .architecture import Transformer
from .convolutional import ConvNet
from .notes import assumptions, disagreements
from .optimizers import default_implementation
from .passes import pass_terms
from .request import Contradiction, Parameters, Request, resolve
from .stored import (
    cast_terms,
    communication_terms,
    gradient_terms,
    second_gradient_terms,
    state_terms,
    step_terms,
    weight_terms,
)
from .terms import ALWAYS, Estimate, Term

#: Two of cuBLAS's, one of the forward's thread and one of the backward's, as torch sizes them: 4 MiB x 2 + 16 KiB x 8.
_WORKSPACE_BYTES = 2 * (2 * 4096 + 8 * 16) * 1024


def estimate(request: Request) -> Estimate:
    """Terms, phases and the peak of one device; raises Contradiction where options do not go together."""
    _check(request)
    parameters = resolve(request)
    terms = [
        *weight_terms(request, parameters),
        *gradient_terms(request, parameters),
        *state_terms(request, parameters),
        *pass_terms(request, parameters),
        *cast_terms(request, parameters),
        *second_gradient_terms(request, parameters),
        *step_terms(request, parameters),
        _workspaces(),
        *communication_terms(request, parameters),
    ]
    return Estimate(
        _title(request, parameters),
        _setting(request),
        parameters.total,
        parameters.trained,
        tuple(term for term in terms if term.bytes != 0),
        assumptions(request, parameters),
        disagreements(request, parameters),
        isinstance(request.model, (Transformer, ConvNet)),
    )


def _check(request: Request) -> None:
    if request.zero and request.gpus == 1:
        raise Contradiction("--zero divides by the devices: say how many with --gpus")
    if isinstance(request.model, Transformer):
        fixed, given = request.model.fixed_sequence, request.sequence
        if fixed is not None and given not in (None, fixed):
            raise Contradiction(f"--seq {given}: {request.model.name} has {fixed} tokens an image")
        if given and not fixed and request.model.positions and given > request.model.positions:
            raise Contradiction(f"--seq {given}: {request.model.name} has {request.model.positions:,} positions")


def _workspaces() -> Term:
    formula = "2 x (2 x 4 MiB + 8 x 16 KiB); 64 MiB on Hopper"
    return Term("cuBLAS workspaces", "temporaries", _WORKSPACE_BYTES, formula, "torch docs, CUDA semantics", ALWAYS)


def _title(request: Request, parameters: Parameters) -> str:
    model = request.model
    total = f"{parameters.total:,} parameters"
    learning = "" if parameters.trained == parameters.total else f", {parameters.trained:,} of them trained"
    if model is None:
        return f"{total}{learning}"
    return f"{model.name}: {total}{learning}"


def _setting(request: Request) -> str:
    optimizer = request.optimizer
    how = request.implementation or default_implementation(optimizer, request.precision)
    parts = [request.precision.words, f"{optimizer.words} ({how})"]
    if request.batch is not None:
        fixed = request.model.fixed_sequence if isinstance(request.model, Transformer) else None
        length = fixed or (None if isinstance(request.model, ConvNet) else request.sequence)
        parts.append(f"batch {request.batch:,}" + (f" x {length:,} tokens" if length else ""))
    if isinstance(request.model, Transformer):
        parts.append("flash attention" if request.flash else "attention written out")
        parts.append(f"{request.checkpointing} checkpointing" if request.checkpointing != "none" else "no checkpoints")
    if request.accumulation > 1:
        parts.append(f"{request.accumulation} micro-batches a step")
    parallel = {0: "DDP", 3: "ZeRO-3 or FSDP"}.get(request.zero, f"ZeRO-{request.zero}")
    parts.append(f"{parallel} on {request.gpus} GPUs" if request.gpus > 1 else "1 GPU")
    return ", ".join(parts)
