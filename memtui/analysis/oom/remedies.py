"""What helps against each cause, the strongest first, with its price and, where it is known, what it saves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from memtui.analysis import units
from memtui.analysis.text import clean

from .cause import Cause, Kind, is_narrow, short_by
from .evidence import LARGEST_CONTEXT_BYTES, Evidence
from .interval import Interval

#: Of full-precision moments, what eight-bit ones do not take.
_EIGHT_BIT_SAVES = 0.75
#: Activations of less than such a part of what an evaluation asked for are not worth a word.
_KEPT_SHARE = 20
_BORN = ("inputs", "activations", "temporaries")
_FULL = ("full", "leak", "first optimizer step", "longest batch", "evaluation peak", "checkpoint peak", "spill")
_ALLOCATOR_SETTING = {
    "HIP": "PYTORCH_HIP_ALLOC_CONF",
    "NPU": "PYTORCH_NPU_ALLOC_CONF",
    "MUSA": "PYTORCH_MUSA_ALLOC_CONF",
}


@dataclass(frozen=True)
class Remedy:
    """One thing to do. `saves_bytes` is at most so much, None where that is not known."""

    action: str
    price: str
    saves_bytes: Optional[int] = None


def remedies(cause: Cause, evidence: Evidence) -> tuple[Remedy, ...]:
    """What fits the cause, or what each of the possible ones has first, where it is undecided."""
    if cause.certain:
        return tuple(_of(cause.kind, evidence))
    likely = [cause.likely] if cause.likely else []
    kinds: list[Kind] = list(dict.fromkeys([*likely, *cause.possible]))
    found: dict[str, Remedy] = {}
    for kind in kinds:
        for remedy in list(_of(kind, evidence))[: 3 if kind == cause.likely or len(kinds) == 1 else 2]:
            found.setdefault(remedy.action, remedy)
    return tuple(found.values())


def _of(kind: Kind, evidence: Evidence) -> Iterator[Remedy]:
    special = {
        "impossible": _impossible,
        "block limit": _block_limit,
        "cap": _cap,
        "other process": _others,
        "fragmentation": _fragmentation,
        "leak": _leak,
        "first optimizer step": _first_step,
        "evaluation peak": _evaluation,
        "checkpoint peak": _checkpoint,
        "longest batch": _longest,
        "spill": _spill,
        "host memory": _host,
        "unexplained": _unexplained,
    }.get(kind, _full)
    yield from special(evidence)


def not_helping(cause: Cause, evidence: Evidence) -> tuple[str, ...]:
    """What is often tried and cannot help here, with the reason."""
    found = []
    if evidence.allocator == "native" and cause.kind in (*_FULL, "fragmentation", "cap", "impossible"):
        found.append("empty_cache() when it fails: PyTorch had given back every whole free segment before it failed")
    if cause.kind == "impossible":
        found.append("any setting of the allocator: no card of this size can serve it")
    if cause.kind in ("full", "first optimizer step", "longest batch") and _hardly_any(evidence):
        found.append("expandable_segments: hardly anything lies idle in PyTorch")
    if cause.kind == "leak":
        found.append("a smaller batch: it only fails later")
    if cause.kind == "other process":
        found.append("a smaller batch alone: what others hold stays")
    return tuple(found)


def _hardly_any(evidence: Evidence) -> bool:
    tried, idle = evidence.tried, evidence.idle
    return tried is not None and idle is not None and idle.high < tried.low // 10


def _impossible(evidence: Evidence) -> Iterator[Remedy]:
    tried, total = evidence.tried, evidence.total
    if tried is not None and total is not None and total.low > 0:
        over = math.ceil(10 * tried.middle / total.middle) / 10
        yield Remedy(
            f"make that one tensor {over:.1f} times smaller, at least: look at its shape first, it may be a mistake",
            "none where it is one",
        )
    else:
        yield Remedy("look at the shape that was asked for: it is most likely a mistake", "none")
    yield Remedy(
        "smaller batch, sequence or resolution; score matrices grow with the square of the sequence", "more steps"
    )
    yield Remedy("memory-efficient attention, where it is a matrix of scores", "needs a kernel for this dtype and mask")
    yield Remedy("compute it in pieces (chunks, tiles), or shard it over several devices", "slower, or communication")


def _block_limit(_evidence: Evidence) -> Iterator[Remedy]:
    yield Remedy("smaller batch or shapes, so that no tensor is larger than the limit", "more steps")
    yield Remedy("compute the largest tensor in pieces", "slower")
    yield Remedy("a newer driver or platform without that limit", "an upgrade")


def _cap(evidence: Evidence) -> Iterator[Remedy]:
    room = None
    if evidence.total is not None and evidence.allowed is not None:
        room = max(0, evidence.total.middle - evidence.allowed.middle)
        if evidence.free is not None:
            room = min(room, evidence.free.middle)
    yield Remedy(
        "raise or drop the cap: torch.cuda.set_per_process_memory_fraction, a framework's utilization setting",
        "whatever it was to protect has less",
        room,
    )
    idle = evidence.idle
    if evidence.tried is not None and idle is not None and idle.low >= evidence.tried.high:
        yield next(_expandable(evidence))
    yield from _shrink(evidence)


def _others(evidence: Evidence) -> Iterator[Remedy]:
    held = evidence.others or evidence.outside
    yield Remedy(
        "end the other processes, or use a device of your own (CUDA_VISIBLE_DEVICES); nvidia-smi lists them",
        "theirs to lose",
        None if held is None else held.middle,
    )
    yield Remedy(
        "ranks: call torch.cuda.set_device(local_rank) before any CUDA call, torch.load with map_location='cpu'",
        "none",
    )
    yield from _outside(evidence)
    yield Remedy("leave room for each other: a cap in each process", "each has less")


def _outside(evidence: Evidence) -> Iterator[Remedy]:
    """Where this process holds more outside PyTorch than a context takes."""
    outside = evidence.own_outside
    if outside is not None and outside.low > LARGEST_CONTEXT_BYTES and evidence.allocator != "metal":
        yield Remedy(
            "fewer libraries and process groups (NCCL) in this process: it holds much outside PyTorch",
            "some code to change",
            outside.middle,
        )


def _fragmentation(evidence: Evidence) -> Iterator[Remedy]:
    if evidence.in_pools:
        yield from _pools(evidence)
        return
    yield from _expandable(evidence)
    if is_narrow(evidence):
        yield from _outside(evidence)
        yield next(_shrink(evidence))
    setting = _ALLOCATOR_SETTING.get(evidence.backend, "PYTORCH_CUDA_ALLOC_CONF")
    limit = _split_mib(evidence)
    if limit is not None and evidence.backend in ("CUDA", "HIP", "NPU", "MUSA"):
        yield Remedy(
            f"{setting}=max_split_size_mb:{limit}: blocks of more than that stay whole",
            "they may be of little use to small requests",
        )
    yield Remedy("steady shapes: pad or bucket batches, the largest one first", "some padding is computed")
    yield Remedy(
        "empty_cache() between training and evaluation, where their shapes differ, before holes are pinned",
        "the next allocations go to the driver again",
    )
    if evidence.live.pins:
        largest = evidence.live.pins[0]
        yield Remedy(
            f"allocate early what lives long: {clean(largest.name, 60)} ({units.size(largest.bytes)}) pins a segment",
            "some code to change",
        )
    else:
        yield Remedy("look at a memory snapshot: which live block pins the largest segment", "a run that records")


def _pools(evidence: Evidence) -> Iterator[Remedy]:
    held = None if evidence.private is None else evidence.private.middle
    yield Remedy("drop CUDA graphs that are not replayed any more: their pools then go back", "captured again", held)
    yield Remedy("one pool for graphs that never run at once: capture them with pool=graph.pool()", "their order", held)
    yield Remedy("capture fewer shapes, the largest first (pad to them)", "some padding is computed")
    yield Remedy('no graphs here: torch.compile without mode="reduce-overhead"', "slower launches")


def _expandable(evidence: Evidence) -> Iterator[Remedy]:
    if evidence.live.expandable or evidence.backend not in ("CUDA", "HIP", "NPU"):
        return
    setting = _ALLOCATOR_SETTING.get(evidence.backend, "PYTORCH_CUDA_ALLOC_CONF")
    caution = "compare before and after: a few programs reserve more with it"
    if evidence.expandable_hint is None:
        caution = "needs PyTorch 2.1 or newer; " + caution
    elif not evidence.expandable_hint:
        caution = "unless it is on already, as the message has no hint of it; " + caution
    yield Remedy(
        f"{setting}=expandable_segments:True: holes at its segments' ends go back and are joined",
        caution,
        None if evidence.idle is None else evidence.idle.middle,
    )


def _split_mib(evidence: Evidence) -> Optional[int]:
    """A power of two below the request that failed, so that such blocks are not split; PyTorch takes more than 20.

    It is below the largest segment that is pinned, too; None where all are too small to stay whole.
    """
    tried = evidence.tried
    limit = 256 if tried is None else min(512, max(32, 1 << max(0, (tried.low >> 21).bit_length() - 1)))
    pinned = max((each.segment_bytes or 0 for each in evidence.live.pins), default=0)
    while pinned and limit << 20 >= pinned:
        limit //= 2
    return limit if limit >= 32 else None


def _leak(evidence: Evidence) -> Iterator[Remedy]:
    what = f" ({clean(evidence.live.growing_category, 40)} grow)" if evidence.live.growing_category else ""
    yield Remedy(
        f"find what is kept from step to step{what}: lists of losses or outputs", "none", evidence.live.grown_bytes
    )
    yield Remedy("keep loss.item() or .detach() instead of a tensor with its graph", "none")
    yield Remedy("compare two snapshots some steps apart: the blocks that only the later one has", "a run that records")


def _first_step(evidence: Evidence) -> Iterator[Remedy]:
    yield from _state(evidence)
    yield from _weights(evidence)
    yield Remedy("foreach=False or fused=True: no copy of all parameters while it steps", "foreach=False is slower")
    yield from _shrink(evidence)


def _evaluation(evidence: Evidence) -> Iterator[Remedy]:
    """Of one that was watched it is known whether gradients were off; what it keeps is known where it was seen."""
    tried, gradients = evidence.tried, _category(evidence, "gradients")
    activations, kept = _category(evidence, "activations"), _category(evidence, "temporaries")
    if not evidence.watched or evidence.live.evaluates:
        yield Remedy("evaluate under torch.no_grad() or inference_mode()", "none", activations)
    elif activations and tried is not None and _KEPT_SHARE * activations >= tried.low:
        yield Remedy(
            "drop the training's loss and outputs before it: their graph keeps activations", "none", activations
        )
    smaller = Remedy(
        "half the evaluation batch", "more steps", tried.middle // 2 if evidence.watched and tried is not None else None
    )
    moved = Remedy("move outputs to the host as they come, instead of keeping them", "transfers", kept or None)
    yield from sorted((smaller, moved), key=lambda remedy: -(remedy.saves_bytes or 0))
    if gradients or not evidence.live.categories:
        yield Remedy("optimizer.zero_grad() before it: gradients need not stay", "none", gradients)
    yield Remedy("compute logits and metrics in pieces", "slower")


def _checkpoint(evidence: Evidence) -> Iterator[Remedy]:
    copied = evidence.tried.middle if evidence.watched and evidence.tried is not None else None
    yield Remedy("copy the state to the host piece by piece before it is saved", "a longer save", copied)
    yield Remedy("torch.load with map_location='cpu', and drop the loaded state when it was copied", "none", copied)
    yield Remedy("sharded saves: each rank writes its own part", "more files, another way to load")
    yield Remedy("bounded asynchronous saves: one in flight", "a more complex save")


def _longest(evidence: Evidence) -> Iterator[Remedy]:
    larger = evidence.live.larger_batch
    activations = _category(evidence, "activations")
    saved = None
    if larger is not None and activations is not None and larger.size > 0:
        saved = activations * (larger.size - larger.before) // larger.size
    elif evidence.live.outgrown is not None:
        saved = evidence.live.outgrown.needed_bytes - evidence.live.outgrown.before_bytes
    most = f"{larger.before:,} {clean(larger.unit, 20)}" if larger is not None else "what has fitted before"
    yield Remedy(
        f"limit batches to {most}: truncate, bucket, or batch by tokens", "long examples are cut or rarer", saved
    )
    yield from _shrink(evidence)


def _spill(evidence: Evidence) -> Iterator[Remedy]:
    over = None
    held = evidence.reserved or evidence.allocated
    if held is not None and evidence.total is not None:
        over = (held - evidence.total).at_least_nothing().middle
    needed = f" by {units.size(over)} at least" if over else ""
    yield Remedy(f"lower what is held{needed}: below the device's size it is fast again", "as below")
    yield from _full(evidence)
    yield Remedy("turn the driver's fallback to system memory off: it then fails early instead of crawling", "it fails")


def _host(_evidence: Evidence) -> Iterator[Remedy]:
    yield Remedy("look at the size that was asked for: a shape may be wrong", "none")
    yield Remedy("fewer or lighter DataLoader workers, less prefetching and pinning", "batches may come later")
    yield Remedy("raise the limit: ulimit -v, the container's or the job's memory", "other programs have less")


def _unexplained(evidence: Evidence) -> Iterator[Remedy]:
    yield Remedy("run it again with the device to itself: another process may have taken the room for a moment", "none")
    if evidence.backend == "XPU":
        yield Remedy("keep single tensors smaller: the driver limits one allocation", "more steps")
    yield Remedy("look at limits outside PyTorch: Windows' page file, MIG or a container, the driver's log", "none")
    yield Remedy("update the driver, and PyTorch", "an upgrade")


def _full(evidence: Evidence) -> Iterator[Remedy]:
    """By what dominates, where somebody watched; else in the order of how cheaply they are tried."""
    if evidence.allocator == "metal":
        yield from _metal(evidence)
        return
    others, short = evidence.others, short_by(evidence)
    if others is not None and short is not None and others.low > max(short.high, LARGEST_CONTEXT_BYTES):
        yield next(_others(evidence))
    categories = evidence.live.categories
    activations = categories.get("activations", 0) + categories.get("temporaries", 0)
    if not evidence.live.births_known and evidence.live.phase in ("forward", "backward", "evaluation"):
        activations += categories.get("unattributed", 0)
    weights = categories.get("parameters", 0) + categories.get("gradients", 0)
    state, workspaces = categories.get("optimizer_state", 0), categories.get("workspaces", 0)
    groups = [(activations, _shrink), (state, _state), (weights, _weights), (workspaces, _workspaces)]
    if not categories:
        groups = groups[:-1]
    groups.sort(key=lambda group: -group[0])
    known = any(size for size, _ in groups)
    for size, levers in groups:
        if size or not known:
            yield from levers(evidence)


def _metal(evidence: Evidence) -> Iterator[Remedy]:
    beside, allocated = evidence.beside, evidence.allocated
    if beside is not None and allocated is not None and beside.low > allocated.high:
        yield Remedy(
            "free what this process holds beside PyTorch's tensors: other models, other libraries",
            "they are loaded again when needed",
            beside.middle,
        )
    yield from _shrink(evidence)
    yield Remedy("freeze layers, or train adapters (LoRA)", "less is trained")
    yield Remedy("PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0: no limit", "the whole system may run out of memory")


def _shrink(evidence: Evidence) -> Iterator[Remedy]:
    activations = _category(evidence, "activations")
    batch = evidence.live.batch
    smaller, saved = "smaller micro-batch", None
    short = short_by(evidence)
    if batch and batch > 1 and activations:
        fewer = _fewer(batch, activations, short)
        smaller, saved = f"batch {batch} → {fewer}", activations * (batch - fewer) // batch
    elif activations:
        smaller, saved = "half the micro-batch", activations // 2
    yield Remedy(f"{smaller} with gradient accumulation, or a shorter sequence", "more steps", saved)
    yield Remedy("gradient checkpointing: activations are computed again", "about a third more compute", activations)
    yield Remedy(
        "memory-efficient attention (scaled_dot_product_attention), bf16 or fp16 autocast", "kernels must support it"
    )


def _fewer(batch: int, activations: int, short: Optional[Interval]) -> int:
    """The largest batch that saves what is short, if one does; else half of it."""
    if short is None or short.high <= 0:
        return batch // 2
    needed = -(-short.high * batch // activations)
    return batch - needed if needed < batch else max(1, batch // 2)


def _state(evidence: Evidence) -> Iterator[Remedy]:
    state, devices = _category(evidence, "optimizer_state"), evidence.live.devices
    state = evidence.live.state_bytes if state is None else state
    eight_bit = None if state is None else int(_EIGHT_BIT_SAVES * state)
    yield Remedy("8-bit optimizer states (of fp32 ones)", "other numerics", eight_bit)
    yield Remedy("offload optimizer state to the host", "transfers in every step", state)
    on, sharded = _sharded(state, devices)
    yield Remedy(f"shard it: ZeRO stage 1 or FSDP{on}", "several devices, communication", sharded)


def _weights(evidence: Evidence) -> Iterator[Remedy]:
    parameters, gradients = _category(evidence, "parameters"), _category(evidence, "gradients")
    devices = evidence.live.devices
    known = None if parameters is None and gradients is None else (parameters or 0) + (gradients or 0)
    on, sharded = _sharded(known, devices)
    yield Remedy(f"FSDP or ZeRO stage 3: parameters and gradients in parts{on}", "communication, complexity", sharded)
    yield Remedy("freeze layers, or train adapters (LoRA)", "less is trained", gradients)


def _sharded(size: Optional[int], devices: Optional[int]) -> tuple[str, Optional[int]]:
    """On how many devices, and what that saves: two where it is not known how many there are."""
    if size is None:
        return "", None
    shared = devices or 2
    return "" if devices else ", on 2 devices", size * (shared - 1) // shared


def _workspaces(evidence: Evidence) -> Iterator[Remedy]:
    yield Remedy(
        "cudnn.benchmark off, a smaller CUBLAS_WORKSPACE_CONFIG", "slower kernels", _category(evidence, "workspaces")
    )


def _activations_at_most(evidence: Evidence) -> Optional[int]:
    """With all that has no known owner: of a step that was not looked at that is mostly what forward has made."""
    if evidence.live.phase not in ("forward", "backward", "evaluation"):
        return None
    return evidence.live.categories.get("activations", 0) + evidence.live.categories.get("unattributed", 0)


def _category(evidence: Evidence, name: str) -> Optional[int]:
    """Bytes that are at most to be had there; None where there may be more, among what has no known owner."""
    if name in _BORN and not evidence.live.births_known:
        return _activations_at_most(evidence) if name == "activations" else None
    return evidence.live.categories.get(name)


def for_complaint(complaint: str) -> tuple[Remedy, ...]:
    """What fits a message without figures, by which of them it is."""
    if complaint == "library":
        return (
            Remedy(
                "look for an index out of range first, with CUDA_LAUNCH_BLOCKING=1: it can end in this error", "slow"
            ),
            Remedy("empty_cache() before the call: the library asks the driver, past what PyTorch keeps", "some time"),
            Remedy("leave it room: set_per_process_memory_fraction, a smaller batch", "less for tensors"),
        )
    if complaint == "jetson":
        return (
            Remedy("read it as out of memory: end what else runs on the board, lower batch or shapes", "more steps"),
            Remedy("watch the system's memory, which the GPU shares: memtui run shows it", "none"),
        )
    return (
        Remedy("see whether others hold the device: nvidia-smi, or memtui ps", "none"),
        Remedy("have the figures told: a newer PyTorch prints them, memtui run watches them", "none"),
    )
