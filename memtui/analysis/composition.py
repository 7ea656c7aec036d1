"""What a device's memory was made of at its fullest, and what moved with the batch from step to step."""

from __future__ import annotations

from typing import Optional

from memtui.session.session import Session
from memtui.wire.frames import Classification

from .view import Composition, Spread

#: Kinds whose size follows the batch, of which backward's temporaries are, and the optimizer's are not.
GROWING = ("activations", "inputs", "temporaries")
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
    looks: list[Classification] = []
    for look, _ in session.looks(device):
        if look.phase == "backward" and look.step and not (looks and looks[-1].step == look.step):
            looks.append(look)
    if len(looks) < _LEAST_LOOKS:
        return None
    least, most = min(looks, key=_activations), max(looks, key=_activations)
    return Spread(
        len(looks), looks[0].step, looks[-1].step, least.step, _activations(least), most.step, _activations(most)
    )


def _activations(look: Classification) -> int:
    return look.categories.get("activations", 0) - look.tagged.get("activations", 0)
