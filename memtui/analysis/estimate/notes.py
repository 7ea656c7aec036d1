"""What an estimate takes for granted, and where published sources disagree with each other."""

from __future__ import annotations

from memtui.analysis.units import size

from .activations import Setting, block, token_bytes
from .architecture import Transformer
from .optimizers import state_size
from .precision import PRECISIONS
from .request import Parameters, Request


def assumptions(request: Request, parameters: Parameters) -> tuple[str, ...]:
    """One sentence each, only those that matter here."""
    precision, recipe = request.precision, request.optimizer
    found = [
        "The optimizer's state is made in its first step: before it each phase is lower by that, so that a run may go "
        "out of memory only in its first step() or its second forward pass."
    ]
    if request.accumulation > 1:
        found.append("Each micro-batch goes backward before the next one: gradients are kept, not activations.")
    elif not request.kept_gradients:
        found.append("Gradients are set to None between steps.")
    state = state_size(recipe, precision, parameters.trained, parameters.trained_shapes)
    if state.assumed:
        found.append(f"{recipe.words}: {state.assumed}.")
    if recipe.rule in ("factored", "muon", "shampoo"):
        found.append(f"{recipe.words}'s own temporaries are taken to be two of the largest parameter's size.")
    found += _model_assumptions(request)
    if request.gpus > 1:
        found.append("Bytes are those of one device; every device has a batch of its own.")
    if precision.master:
        found.append(
            f"{precision.name} is 16-bit weights with an fp32 copy, as DeepSpeed and Megatron have it; what Lightning "
            "calls so is autocast, amp-bf16 or amp-fp16 here."
        )
    if precision.name == "fp8":
        found.append(
            "fp8 products leave weights and saved tensors as wide as they are: published 61.8 GiB, 62.0 without."
        )
    return tuple(found)


def _model_assumptions(request: Request) -> list[str]:
    model, found = request.model, []
    if isinstance(model, Transformer) and model.classes is None and request.batch:
        width = "in fp32 " if model.loss_fp32 or request.precision.compute == 4 else ""
        held = "has let go of them before" if request.released_logits else "holds them through"
        found.append(f"The loss is taken {width}of all tokens' logits, and the program {held} backward.")
    if isinstance(model, Transformer) and request.flash and request.precision.compute == 4:
        found.append("Flash kernels take 16 bits; in fp32 the memory-efficient one does the same.")
    if request.lora_rank:
        found.append("Adapters have the width of the weights, and no dropout of their own.")
    if request.freeze.parameters:
        found.append("Which parameters are frozen is not known: activations are counted as if none were.")
    if model is None and request.batch and request.sequence:
        found.append("Without an architecture activations are a fit over other models: a rough guess.")
    return found


def disagreements(request: Request, parameters: Parameters) -> tuple[str, ...]:
    """Where two published rules give two figures for this run, which one holds and why."""
    found = []
    adam = request.optimizer.name in ("adam", "adamw")
    if adam:
        found.append(_sixteen(request, parameters))
    if adam and not request.precision.master and request.implementation in (None, "foreach"):
        found.append(_four_or_five(request, parameters))
    if isinstance(request.model, Transformer) and request.batch and (request.sequence or request.model.patch):
        found.append(_scores(request, request.model, request.batch))
    if request.model is None and request.batch and request.sequence:
        found.append(
            "Activations a token: the linear fit's text measured 5,065,216 for a model of 1.5 B, which was counted in "
            "bytes and multiplied by the width again; the fit gives half of it. Name an architecture, or measure."
        )
    return tuple(found)


def _sixteen(request: Request, parameters: Parameters) -> str:
    trained = parameters.trained
    return (
        f"Bytes a trained parameter: 16 (Rajbhandari et al. 2020: 2 + 2 + 12; {size(16 * trained)}), 18 (Hugging Face "
        f"docs: 6 + 4 + 8; {size(18 * trained)}), 16 to 20 (Megatron docs, by the width of its gradients). Each holds "
        "for its own recipe: fp32 Adam, autocast, and 16 bits with a master copy keep 16 between steps; 18 adds "
        "autocast's 16-bit copies of the weights, alive from forward to backward only, or fp32 gradients beside "
        f"16-bit weights; 20 has gradients in both widths. Here: {_stored(request)}."
    )


def _stored(request: Request) -> str:
    precision = request.precision
    gradient = request.gradient_width or precision.gradient
    parts = [precision.weight, gradient, 2 * precision.state, *([precision.master] if precision.master else [])]
    return f"{' + '.join(map(str, parts))} = {sum(parts)}"


def _four_or_five(request: Request, parameters: Parameters) -> str:
    width = request.precision.weight
    four, five = 4 * parameters.trained * width, 5 * parameters.trained * width
    return (
        f"Peak of Adam's step: 4 N P ({size(four)}) where the largest of gradients, intermediates and activations is "
        f"taken, 5 N P ({size(five)}) with gradients and intermediates together. The second is right for foreach, "
        "torch's default on a GPU: gradients are alive while the intermediates are; fused leaves the intermediates out."
    )


def _scores(request: Request, model: Transformer, batch: int) -> str:
    sequence = model.fixed_sequence or request.sequence or 0
    every = frozenset(("qkv", "q", "k", "v", "o", "gate", "up", "down", "norm"))
    here = [
        token_bytes(block(model, Setting(request.precision, sequence, flash, request.dropout, every)))
        for flash in (False, True)
    ]
    hidden = model.hidden
    paper = [batch * sequence * (34 * hidden + 5 * model.heads * sequence), batch * sequence * 34 * hidden]
    own = [batch * sequence * each for each in here]
    kind = PRECISIONS["fp32"].words if request.precision.compute == 4 else "16 bits"
    return (
        f"A block's activations: s b h (34 + 5 a s / h) is {size(paper[0])}, 34 s b h with flash attention "
        f"{size(paper[1])} (Korthikanti et al. 2022). That is a GPT block in 16 bits with dropout; this one in "
        f"{kind} keeps {size(own[0])} and {size(own[1])}. The score term goes with flash attention; who leaves it in "
        "for a flash run, or out for one without, is wrong by the square of the sequence."
    )
