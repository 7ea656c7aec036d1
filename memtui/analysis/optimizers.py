"""How much state an optimizer will make at its first step, by its class and options."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Callable, Optional

from memtui.session.session import Session
from memtui.wire.frames import Optimizer

from .backward.graph import rounded
from .backward.holes import Doing
from .text import clean
from .view import Kind, OptimizerState

_Options = dict[str, Any]

#: Parameter-shaped state tensors of torch's own classes (and of others' that keep the names and the state). Each has
#: the parameter's dtype, so a multiple of parameter bytes. Classes whose state has another shape or dtype (Adafactor,
#: LBFGS, the 8-bit ones) are not here: there is no prediction for them.
_STATE_TENSORS: dict[str, Callable[[_Options], int]] = {
    "Adam": lambda options: 3 if options.get("amsgrad") else 2,
    "AdamW": lambda options: 3 if options.get("amsgrad") else 2,
    "SparseAdam": lambda options: 2,
    "NAdam": lambda options: 2,
    "RAdam": lambda options: 2,
    "Adamax": lambda options: 2,
    "Adadelta": lambda options: 2,
    "Adagrad": lambda options: 1,
    "RMSprop": lambda options: 1 + bool(options.get("momentum")) + bool(options.get("centered")),
    "Rprop": lambda options: 2,
    "ASGD": lambda options: 1,
    "SGD": lambda options: 1 if options.get("momentum") else 0,
    "Muon": lambda options: 1,
}

#: State that is made by the constructor, and so is in memory already.
_EAGER = frozenset({"Adagrad"})

#: Parameter-shaped temporaries of the foreach form, which torch takes by default for parameters on a GPU.
_FOREACH_TEMPORARIES = {"Adagrad": 2, "Adadelta": 2, "SGD": 0}


def state_factor(optimizer: Optimizer) -> Optional[int]:
    """State bytes a parameter byte after the first step; None for a class that is not in the table."""
    tensors = _STATE_TENSORS.get(optimizer.name)
    return None if tensors is None else tensors(optimizer.options)


def missing_state_bytes(session: Session, optimizer: Optimizer, device: str) -> Optional[int]:
    """State that `optimizer` is still to make on `device`; 0 once it has stepped, None where that is not known."""
    return 0 if _has_stepped(optimizer) else first_state_bytes(session, optimizer, device)


def first_state_bytes(session: Session, optimizer: Optimizer, device: str) -> Optional[int]:
    """State that the first step makes on `device`: by its own step where that was tried, else by the table."""
    trial = session.trial(optimizer, device)
    if trial is not None and trial.state_bytes is not None:
        return trial.state_bytes
    trainable = optimizer.trainable_bytes.get(device, 0)
    factor = state_factor(optimizer)
    return 0 if trainable == 0 else None if factor is None else factor * trainable


def optimizer_state(session: Session, device: str) -> Optional[OptimizerState]:
    """What those that step parameters on `device` keep there, or will; None where it is elsewhere, or not known."""
    optimizers = () if session.model is None else session.model.optimizers
    here = [optimizer for optimizer in optimizers if optimizer.trainable_bytes.get(device)]
    missing = [missing_state_bytes(session, optimizer, device) for optimizer in here]
    made = [optimizer for optimizer in here if _has_stepped(optimizer)]
    if made:
        held = sum((optimizer.state_bytes or {}).get(device, 0) for optimizer in made)
        if not held and any(optimizer.state_bytes for optimizer in made):
            return None  # kept on another device
        return _state(made, held, device, "measured" if len(made) == len(here) else "lower_bound")
    if not here or None in missing:
        return None
    trials = [session.trial(optimizer, device) for optimizer in here]
    tried = all(trial is not None and trial.state_bytes is not None for trial in trials)
    return _state(here, sum(size or 0 for size in missing), device, "predicted", tried=tried)


def _state(optimizers: list[Optimizer], held: int, device: str, kind: Kind, *, tried: bool = False) -> OptimizerState:
    names = ", ".join(dict.fromkeys(clean(optimizer.name, 60) for optimizer in optimizers))
    trained = sum(optimizer.trainable_bytes[device] for optimizer in optimizers)
    return OptimizerState(names, held, trained, kind, tried)


def _has_stepped(optimizer: Optimizer) -> bool:
    return optimizer.steps > 0 or bool(optimizer.state_bytes) or optimizer.name in _EAGER


def first_doing(session: Session, optimizer: Optimizer, device: str, trained: Sequence[int]) -> Doing:
    """What its first step makes and frees, in order: as it was tried, else the state alone, by the table.

    `trained` are the bytes of all tensors that get a gradient, where it had stepped before it was described.
    """
    trial = session.trial(optimizer, device)
    if trial is not None and trial.events:
        return Doing(tuple(trial.sizes), tuple(trial.events))
    factor, recipe = state_factor(optimizer), session.trials.recipe(optimizer)
    if not factor or (trial is not None and trial.state_bytes is not None):
        return Doing((), ())
    if recipe is not None:
        runs = [run for group in recipe.groups for run in group.parameters if run.device == device]
        trained = [rounded(math.prod(run.shape) * _width(run.dtype)) for run in runs for _ in range(run.count)]
    sizes = [size for size in trained for _ in range(factor)]
    return Doing(tuple(sizes), tuple(range(len(sizes))))


def _width(dtype: str) -> int:
    """Bytes of an element, by the number in the name: bfloat16, float8_e4m3fn."""
    found = re.search(r"\d+", dtype)
    return max(1, int(found[0]) // 8) if found else 1


def temporary_bytes(session: Session, optimizer: Optimizer, device: str, *, first: bool = False) -> int:
    """What one step of `optimizer` holds for a moment on `device`, beside the state that a `first` one makes.

    By its own step where that was tried, else as it is usual.
    """
    trial = session.trial(optimizer, device)
    if trial is not None:
        if first and trial.first_bytes is not None and trial.state_bytes is not None:
            return max(0, trial.first_bytes - trial.state_bytes)
        if not first and trial.later_bytes is not None:
            return trial.later_bytes
    return usual_temporary_bytes(optimizer, device)


def usual_temporary_bytes(optimizer: Optimizer, device: str) -> int:
    """About one copy of the parameters in foreach form; 0 for a class that is not in the table: at least that much."""
    options = optimizer.options
    foreach = options.get("foreach")
    if optimizer.name not in _STATE_TENSORS or options.get("fused"):
        return 0
    if foreach is False or (foreach is None and device == "host"):
        return 0
    return _FOREACH_TEMPORARIES.get(optimizer.name, 1) * optimizer.trainable_bytes.get(device, 0)
