"""Peaks that can be told during the first step: its own, and that of the steps after it. Derived, in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from memtui.session.firststep import FirstStep
from memtui.session.session import Session

from .optimizers import first_state_bytes, temporary_bytes


@dataclass(frozen=True)
class Peaks:
    """The most that is allocated in the first step, and in any step after it."""

    first_bytes: int
    later_bytes: int


@dataclass(frozen=True)
class Coming:
    """The first backward, from where it began: its peak, and what is allocated at its end."""

    peak_bytes: int
    end_bytes: int


def backward_to_come(session: Session, device: str, first: FirstStep) -> Optional[Coming]:
    """None where its beginning was not seen.

    At its beginning all activations are there, and the gradient of the largest with what it is computed from; at its
    end they have gone, and every gradient is there.
    """
    if first.backward_bytes is None or first.largest_activation_bytes is None or first.base_bytes is None:
        return None
    if session.model is None:
        return None
    gradients = sum(optimizer.trainable_bytes.get(device, 0) for optimizer in session.model.optimizers)
    end = first.base_bytes + gradients
    return Coming(max(first.backward_bytes + 2 * first.largest_activation_bytes, end), end)


def after_forward(session: Session, device: str) -> Optional[Peaks]:
    """As it could be told when the first backward began, also now; None where it could not."""
    first = session.first_step(device)
    coming = None if first is None or first.step != 0 else backward_to_come(session, device, first)
    return None if coming is None else _peaks(session, device, coming)


def before_optimizer(session: Session, device: str) -> Optional[Peaks]:
    """As it could be told when the first optimizer began, also now; None where it could not."""
    first = session.first_step(device)
    if first is None or first.step != 0 or not first.backward_ended:
        return None
    if first.allocated_bytes is None or first.peak_bytes is None:
        return None
    return _peaks(session, device, Coming(first.peak_bytes, first.allocated_bytes))


def _peaks(session: Session, device: str, backward: Coming) -> Optional[Peaks]:
    """On top of the state, which is that of before the first step, also where it can be measured by now."""
    optimizers = () if session.model is None else session.model.optimizers
    states = [first_state_bytes(session, optimizer, device) for optimizer in optimizers]
    if not states or None in states:
        return None
    state = sum(size or 0 for size in states)
    temporaries = [
        max(temporary_bytes(session, optimizer, device, first=first) for optimizer in optimizers)
        for first in (True, False)
    ]
    return Peaks(
        max(backward.peak_bytes, backward.end_bytes + state + temporaries[0]),
        max(backward.peak_bytes, backward.end_bytes + temporaries[1]) + state,
    )
