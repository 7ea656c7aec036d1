"""What a device's memory was made of at its fullest, and what moved with the batch from step to step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from memtui.session.session import Session
from memtui.wire.frames import Classification

from .view import Composition, Spread

#: Kinds whose size follows the batch, of which backward's temporaries are, and the optimizer's are not.
GROWING = ("activations", "inputs", "temporaries")
#: Inputs that differ by less tell nothing of what follows them.
_LEAST_TIMES = 1.05
#: Looks that are compared must be so many before they say anything.
_LEAST_LOOKS = 3


def growing(phase: str) -> tuple[str, ...]:
    """Kinds that grow with the batch: what the optimizer makes for a moment is as large as the parameters."""
    return GROWING[:-1] if phase == "optimizer" else GROWING


def fullest(session: Session, device: str) -> Optional[Composition]:
    """The categories at the fullest instant that was looked at, the newest of equals; None before any look.

    Fullest by what has an owner: a log's categories are of the frame's instant, and what is unattributed with them.
    """
    found = max((look for look, _ in reversed(session.looks(device))), key=_owned_bytes, default=None)
    if found is None or _owned_bytes(found) <= 0:
        return None
    parts = tuple(sorted(((key, held) for key, held in found.categories.items() if held), key=lambda part: -part[1]))
    tagged = tuple((key, held) for key, held in found.tagged.items() if held)
    return Composition(sum(held for _, held in parts), found.phase, found.step, parts, tagged)


def _owned_bytes(look: Classification) -> int:
    return sum(held for key, held in look.categories.items() if key != "unattributed")


def spread(session: Session, device: str) -> Optional[Spread]:
    """The least and the most that activations were as a step's first backward began; None of too few steps.

    The first step is left out: its allocator and its libraries are not yet as they will be.
    """
    looks = _backward_begins(session, device)
    if len(looks) < _LEAST_LOOKS:
        return None
    least, most = min(looks, key=_activations), max(looks, key=_activations)
    return Spread(
        len(looks), looks[0].step, looks[-1].step, least.step, _activations(least), most.step, _activations(most)
    )


@dataclass(frozen=True)
class Proportion:
    """Two steps with unlike inputs, told by how many were completed, and how many times as much the larger has."""

    least_step: int
    most_step: int
    inputs_times: float
    activations_times: float


def proportion(session: Session, device: str) -> Optional[Proportion]:
    """The steps whose inputs were most unlike as backward began; None where all were about as large."""
    looks = [look for look in _backward_begins(session, device) if _inputs(look) > 0 and _activations(look) > 0]
    if len(looks) < _LEAST_LOOKS:
        return None
    least, most = min(looks, key=_inputs), max(looks, key=_inputs)
    times = _inputs(most) / _inputs(least)
    if times < _LEAST_TIMES:
        return None
    return Proportion(least.step, most.step, times, _activations(most) / _activations(least))


def _backward_begins(session: Session, device: str) -> list[Classification]:
    """The first look of each step's backward, but for the first step."""
    looks: list[Classification] = []
    for look, _ in session.looks(device):
        if look.phase == "backward" and look.step and not (looks and looks[-1].step == look.step):
            looks.append(look)
    return looks


def _inputs(look: Classification) -> int:
    return look.categories.get("inputs", 0)


def _activations(look: Classification) -> int:
    return look.categories.get("activations", 0) - look.tagged.get("activations", 0)
