"""How much state an optimizer will make at its first step, by its class and options."""

from __future__ import annotations

from typing import Any, Callable, Optional

from memtui.wire.frames import Optimizer

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


def missing_state_bytes(optimizer: Optimizer, device: str) -> Optional[int]:
    """State that `optimizer` is still to make on `device`; 0 once it has stepped, None where that is not known."""
    if optimizer.steps > 0 or optimizer.state_bytes or optimizer.name in _EAGER:
        return 0
    trainable = optimizer.trainable_bytes.get(device, 0)
    factor = state_factor(optimizer)
    return 0 if trainable == 0 else None if factor is None else factor * trainable


def temporary_bytes(optimizer: Optimizer, device: str) -> int:
    """What one step of `optimizer` holds for a moment on `device`: about one copy of the parameters in foreach form.

    0 for a class that is not in the table: at least that much.
    """
    options = optimizer.options
    foreach = options.get("foreach")
    if optimizer.name not in _STATE_TENSORS or options.get("fused"):
        return 0
    if foreach is False or (foreach is None and device == "host"):
        return 0
    return _FOREACH_TEMPORARIES.get(optimizer.name, 1) * optimizer.trainable_bytes.get(device, 0)
