"""What a stack tells of its memory, as a letter and a colour: those of the live screen's likest tenants."""

from __future__ import annotations

from memtui.snapshots.stacks import BACKWARD, BEFORE, FORWARD, NO_STACK, OPTIMIZER, OTHER, PARAMETERS

#: category: (letter, tenant)
_LOOKS = {
    PARAMETERS: ("P", "parameters"),
    OPTIMIZER: ("O", "optimizer_state"),
    FORWARD: ("f", "activations"),
    BACKWARD: ("b", "gradients"),
    OTHER: ("o", "temporaries"),
    NO_STACK: ("?", "unattributed"),
    BEFORE: ("-", "reusable_cache"),
}


def letter(category: str) -> str:
    """One character."""
    return _LOOKS.get(category, ("?", ""))[0]


def tenant(category: str) -> str:
    """Whose colour it has."""
    return _LOOKS.get(category, ("", "other_tenant"))[1]
