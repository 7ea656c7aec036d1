"""The device that a training is to fit on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from .accuracy import KnownError


@dataclass(frozen=True)
class Device:
    """A device's memory, and what CUDA and its libraries take of it outside PyTorch; None where not known."""

    name: str
    capacity_bytes: Optional[int] = None
    context_bytes: Optional[int] = None
    context_source: str = ""


@dataclass(frozen=True)
class Fit:
    """Whether a peak fits: "fits", "does not fit", or "cannot be told" where the known error is wider than the rest."""

    needed_bytes: int
    spare_bytes: int  # negative where it is too little
    answer: str


def fit(peak_bytes: int, least_bytes: int, device: Device, error: KnownError, *, complete: bool) -> Optional[Fit]:
    """Sets a peak and the context, where it is known, against a device; None where its size is not known.

    The error that nine in ten published peaks stay within is left on both sides; `least_bytes`, without activations,
    is needed anyhow. A peak that is not `complete` is a lower bound: it can show that a run does not fit, never that
    it does.
    """
    capacity = device.capacity_bytes
    if capacity is None:
        return None
    context = device.context_bytes or 0
    needed = peak_bytes + context
    margin = peak_bytes * error.ninetieth
    if max(needed - margin, least_bytes + context) > capacity:
        answer = "does not fit"
    elif complete and needed + margin <= capacity:
        answer = "fits"
    else:
        answer = "cannot be told"
    return Fit(needed, capacity - needed, answer)
