"""The changes that can be asked about: which categories each moves, by which rule, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Callable, Literal, Optional

from memtui.analysis import units
from memtui.analysis.estimate.optimizers import RECIPES, state_size
from memtui.analysis.estimate.precision import PRECISIONS
from memtui.analysis.estimate.stored import REDUCE_BUCKET, share
from memtui.analysis.optimizers import state_factor, usual_temporary_bytes

from .facts import Facts
from .moments import Moment, grown

#: Against the truth: what was reckoned, at least that, at most that, or about that: a bound of what is itself a bound.
Sign = Literal["", "≥", "≤", "≈"]
Change = Callable[[Moment], Moment]

ACTIVATIONS, PARAMETERS, STATE, STEP = "activations", "parameters and gradients", "optimizer state", "temporaries"

#: Of a LoRA: about what rank 16 on attention's matrices comes to.
_ADAPTERS = 0.01
_EIGHT_BIT = {"Adam": "adamw8bit", "AdamW": "adamw8bit", "Lion": "lion8bit"}
_FUSED = frozenset(("Adam", "AdamW", "SGD", "Adagrad"))
_HALVED = ("activations", "temporaries")
_FLOATS = ("parameters", "buffers", "gradients", "activations", "temporaries", "communication")


@dataclass(frozen=True)
class Lever:
    """One change. `moments` are a step's afterwards, none where they cannot be told; `why_not` says so, or that it is
    in use. `rule` and `assumes` are for people."""

    key: str
    group: str
    words: str
    rule: str
    price: str = ""
    assumes: str = ""
    sign: Sign = ""
    moments: tuple[Moment, ...] = ()
    why_not: str = ""


def levers(facts: Facts, times: int, devices: int) -> tuple[Lever, ...]:
    """All of them, in the order of what they act on; `times` is of the batch, `devices` those that share."""
    found = (*_of_activations(facts, times), *_of_parameters(facts, devices), *_of_state(facts, devices))
    return tuple(found)


def _changed(lever: Lever, facts: Facts, change: Change) -> Lever:
    return replace(lever, moments=tuple(map(change, facts.moments)))


# Activations


def _of_activations(facts: Facts, times: int) -> Iterator[Lever]:
    grows = "activations, inputs and backward's temporaries in proportion to the batch; the rest stays"
    batch = Lever("batch", ACTIVATIONS, f"batch ×{times}", grows, "none, if it fits")
    batch = replace(batch, assumes=f"they all grow alike; {facts.growth}" if facts.growth else "they all grow alike")
    yield _changed(batch, facts, lambda each: grown(each, times))
    yield _accumulated(facts)
    yield _checkpointed(facts)
    yield _autocast(facts)


def _accumulated(facts: Facts) -> Lever:
    lever = Lever(
        "accumulate",
        ACTIVATIONS,
        "half the batch, accumulated",
        "activations, inputs and backward's temporaries halve; every gradient stays from one micro-batch to the next",
        "two passes a step",
    )
    if facts.batch == 1:
        return replace(lever, why_not="the batch is one sample already")
    if facts.largest_gradient_bytes is None:
        lever = replace(lever, sign="≥", assumes="beside them, for a moment, a gradient before it is added to its sum")
    else:
        size = units.size(facts.largest_gradient_bytes)
        lever = replace(
            lever, assumes=f"the largest gradient ({size}) is there twice for a moment, at worst at the peak"
        )
    return _changed(lever, facts, lambda each: _micro_batch(each, facts))


def _micro_batch(each: Moment, facts: Facts) -> Moment:
    half = grown(each, 0.5)
    if each.phase == "optimizer":
        return half
    twice = (facts.largest_gradient_bytes or 0) if each.phase == "backward" else 0
    gradients = max(facts.trained_bytes, each.size("gradients"))
    return half.with_sizes(gradients=gradients, temporaries=half.size("temporaries") + twice)


def _checkpointed(facts: Facts) -> Lever:
    found = facts.checkpointed
    lever = Lever(
        "checkpointing",
        ACTIVATIONS,
        "gradient checkpointing",
        f"each of the {found.blocks} repeated blocks keeps its output only, and has the rest again during its backward"
        if found.blocks
        else "blocks keep their inputs only, and have the rest again during their backward",
        "a second forward, about a third more compute",
        "the last tensor that a block's forward kept is its output",
    )
    if found.moments:
        return replace(lever, moments=found.moments)
    return replace(lever, why_not=found.reason)


def _autocast(facts: Facts) -> Lever:
    lever = Lever(
        "autocast",
        ACTIVATIONS,
        "bf16 autocast",
        "at best activations and backward's temporaries halve; parameters, gradients and state stay float32",
        "other numerics",
        "norms, losses and residuals stay float32, and 16-bit copies of weights come on top, so less is saved; where "
        "autocast is in use already nothing is: that is not seen from here",
        "≥",
    )
    if not _float32(facts):
        return replace(lever, why_not=f"parameters are {_widest(facts)} already")
    return _changed(lever, facts, lambda each: each if each.phase == "optimizer" else _scaled(each, _HALVED, 0.5))


# Parameters and gradients


def _of_parameters(facts: Facts, devices: int) -> Iterator[Lever]:
    yield _bf16(facts)
    yield _sharded(facts, 2, devices)
    yield _sharded(facts, 3, devices)
    yield _frozen(facts)
    yield _adapted(facts)


def _bf16(facts: Facts) -> Lever:
    lever = Lever(
        "bf16",
        PARAMETERS,
        "bf16, parameters and all",
        "what is float32 halves: parameters, gradients, moments, activations, temporaries; inputs stay",
        "other numerics; no float32 copy of the weights",
        "moments are kept in the parameters' dtype, and activations follow it",
    )
    part = _float32(facts)
    if not part:
        return replace(lever, why_not=f"in use: parameters are {_widest(facts)} already")
    keys: tuple[str, ...] = (*_FLOATS, "optimizer_state")
    if any(state_factor(optimizer) is None for optimizer in facts.optimizers):
        keys, said = _FLOATS, "this optimizer's state stays as it is; activations follow the parameters' dtype"
        lever = replace(lever, assumes=said)
    return _changed(lever, facts, lambda each: _scaled(each, keys, 1 - part / 2))


def _sharded(facts: Facts, stage: int, devices: int) -> Lever:
    what = {1: "optimizer state", 2: "gradients and optimizer state", 3: "parameters, gradients and optimizer state"}
    names = {1: "ZeRO-1", 2: "ZeRO-2", 3: "FSDP (ZeRO-3)"}
    lever = Lever(
        f"zero{stage}",
        STATE if stage == 1 else PARAMETERS,
        f"{names[stage]} on {devices} devices",
        f"{what[stage]} are divided by {devices}; activations are not"
        if stage > 1
        else f"{what[1]} is divided by {devices}",
        "devices, communication",
        "every device keeps this batch; buckets that DDP has now go; NCCL's own memory comes on top",
    )
    used = _sharding_in_use(facts)
    if used:
        return replace(lever, why_not=used)
    if stage == 3 and facts.gathered_bytes is None:
        more = "; so do the parameters gathered for a block: d records a step, and they are counted"
        lever = replace(lever, sign="≥", assumes=lever.assumes + more)
    elif stage == 3:
        gathered = units.size(facts.gathered_bytes)
        lever = replace(lever, rule=f"{lever.rule}; {gathered} gathered at a time: two blocks and what is in none")
    else:
        bucket = units.size(_bucket(facts))
        lever = replace(lever, rule=f"{lever.rule}; a bucket of {bucket} to send gradients from (DeepSpeed's size)")
    return _changed(lever, facts, lambda each: _shard(each, facts, stage, devices))


def _bucket(facts: Facts) -> int:
    width = facts.trained_bytes // max(1, facts.trained)
    return min(facts.trained, REDUCE_BUCKET) * width


def _shard(each: Moment, facts: Facts, stage: int, devices: int) -> Moment:
    def part(key: str) -> int:
        return share(each.size(key), devices) or 0

    sizes = {"optimizer_state": part("optimizer_state")}
    if each.phase == "optimizer":
        sizes["temporaries"] = part("temporaries")
    if stage >= 2:
        sizes["gradients"] = part("gradients")
    if stage >= 3:
        sizes["parameters"] = part("parameters")
    extra = 0
    if each.phase != "optimizer":
        extra = _bucket(facts) if stage < 3 else facts.gathered_bytes or 0
        if stage < 3 and each.phase != "backward":
            extra = 0
        if stage == 3 and each.phase == "backward":
            extra += facts.block_bytes or 0
    return each.with_sizes(**sizes, communication=extra)


def _frozen(facts: Facts) -> Lever:
    some = facts.trained_bytes < 0.99 * facts.parameter_bytes
    lever = Lever(
        "frozen",
        PARAMETERS,
        "half of the trained frozen" if some else "half the model frozen",
        "gradients, optimizer state and the optimizer's temporaries halve",
        "less that learns",
        "activations stay at most as they are: those before the first trained layer go",
        "≤",
    )
    return _changed(lever, facts, lambda each: _trained_part(each, 0.5, 0.0))


def _adapted(facts: Facts) -> Lever:
    lever = Lever(
        "lora",
        PARAMETERS,
        "LoRA, about 1 % trained",
        "gradients, optimizer state and the optimizer's temporaries are those of 1 %, added to the parameters",
        "less that learns",
        "activations stay as they are",
    )
    if facts.trained_bytes < 0.1 * facts.parameter_bytes:
        part = units.percent(facts.trained_bytes, facts.parameter_bytes)
        return replace(lever, why_not=f"in use: {part} of the parameters are trained")
    whole = facts.trained_bytes / facts.parameter_bytes
    return _changed(lever, facts, lambda each: _trained_part(each, _ADAPTERS / whole, _ADAPTERS))


def _trained_part(each: Moment, part: float, added: float) -> Moment:
    keys = ["gradients", "optimizer_state"] + (["temporaries"] if each.phase == "optimizer" else [])
    less = _scaled(each, tuple(keys), part)
    return less.with_sizes(parameters=ceil(each.size("parameters") * (1 + added)))


# Optimizer state and step


def _of_state(facts: Facts, devices: int) -> Iterator[Lever]:
    yield _sharded(facts, 1, devices)
    yield _eight_bit(facts)
    yield _stateless(facts)
    yield _fused(facts)


def _held(facts: Facts) -> int:
    return max(each.size("optimizer_state") for each in facts.moments)


def _eight_bit(facts: Facts) -> Lever:
    lever = Lever(
        "8bit",
        STATE,
        "8-bit optimizer",
        "moments take a byte an element and a scale for 256 of them, and the step updates in place",
        "another library, other numerics",
        "tensors under 4,096 elements, which stay float32, are few",
    )
    names = {optimizer.name for optimizer in facts.optimizers}
    if any("8bit" in name.lower() for name in names):
        return replace(lever, why_not="in use already")
    if not _held(facts):
        return replace(lever, why_not="there is no optimizer state")
    if not names or not names <= _EIGHT_BIT.keys():
        return replace(lever, why_not=f"no 8-bit form of {', '.join(sorted(names)) or 'the optimizer'} is known here")
    size = state_size(RECIPES[_EIGHT_BIT[max(names)]], PRECISIONS["fp32"], facts.trained, ()).bytes or 0
    return _changed(lever, facts, lambda each: _with_state(each, size))


def _stateless(facts: Facts) -> Lever:
    lever = Lever("sgd", STATE, "SGD without momentum", "no optimizer state, and none of its temporaries")
    lever = replace(lever, price="it learns otherwise, and often worse")
    if not _held(facts):
        return replace(lever, why_not="there is no optimizer state")
    return _changed(lever, facts, lambda each: _with_state(each, 0))


def _with_state(each: Moment, size: int) -> Moment:
    less = each.with_sizes(optimizer_state=size)
    return less.with_sizes(temporaries=0) if each.phase == "optimizer" else less


def _fused(facts: Facts) -> Lever:
    lever = Lever(
        "fused",
        STEP,
        "fused optimizer step",
        "the optimizer's step updates in place, without a copy of the parameters; all else stays",
        "none known: fused=True",
    )
    if any(optimizer.options.get("fused") for optimizer in facts.optimizers):
        return replace(lever, why_not="in use already")
    if not facts.optimizers or any(optimizer.name not in _FUSED for optimizer in facts.optimizers):
        return replace(lever, why_not="this optimizer has no fused form in torch")
    if not any(
        usual_temporary_bytes(optimizer, next(iter(optimizer.trainable_bytes))) for optimizer in facts.optimizers
    ):
        return replace(lever, why_not="its step makes no copy of the parameters")
    return _changed(lever, facts, lambda each: each.with_sizes(temporaries=0) if each.phase == "optimizer" else each)


# What is in use


def _float32(facts: Facts) -> float:
    whole = sum(facts.dtypes.values())
    return facts.dtypes.get("float32", 0) / whole if whole else 0.0


def _widest(facts: Facts) -> str:
    return max(facts.dtypes, key=lambda name: facts.dtypes[name], default="of an unknown dtype")


def _sharding_in_use(facts: Facts) -> str:
    if any(root.startswith(("FSDP", "FullyShardedDataParallel")) for root in facts.roots):
        return "in use: the model is sharded by FSDP already"
    if any(root.startswith("DeepSpeed") for root in facts.roots):
        return "DeepSpeed's own configuration decides, which is not seen from here"
    if any(optimizer.name == "ZeroRedundancyOptimizer" for optimizer in facts.optimizers):
        return "in use: ZeRO-1, by torch's ZeroRedundancyOptimizer; more takes another wrapper"
    return ""


def _scaled(each: Moment, keys: tuple[str, ...], by: float) -> Moment:
    return each.with_sizes(**{key: round(each.size(key) * by) for key in keys})


def room_bytes(facts: Facts) -> Optional[int]:
    """What tensors can have on the device; None where it is not known."""
    if facts.reach_bytes is None or facts.outside_bytes is None:
        return None
    return facts.reach_bytes - facts.outside_bytes
