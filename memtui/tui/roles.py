"""What a cell is, apart from how a theme draws it: one character a role, so that a line of roles is a string."""

from __future__ import annotations

from memtui.wire.frames import CATEGORIES, PHASES

# A space is plain background.
TEXT = "a"
BRIGHT = "b"
DIM = "c"
FAINT = "d"
TITLE = "e"
FRESH = "f"  # a figure that has just changed
PREDICTED = "g"
KEY = "h"
ACTIVE = "i"
GOOD = "j"
WARNING = "k"
BAD = "l"
UNKNOWN = "m"
GOOD_CHIP = "n"
WARNING_CHIP = "o"
BAD_CHIP = "p"
UNKNOWN_CHIP = "q"
NOTE = "r"
SELECTED = "s"

# The chart
ALLOCATED = "A"
ENVELOPE = "B"
RESERVED = "C"
DEVICE = "D"
PROCESS = "E"
CAPACITY = "F"
FORECAST = "G"
CURSOR = "H"
AXIS = "I"

LEVELS = {"good": GOOD, "warning": WARNING, "bad": BAD, "unknown": UNKNOWN}
CHIPS = {"good": GOOD_CHIP, "warning": WARNING_CHIP, "bad": BAD_CHIP, "unknown": UNKNOWN_CHIP}

#: Tenants of a device's memory, in the order of the ladder; `analysis` may name others, which look like OTHER_TENANT.
TENANTS = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer_state",
    "activations",
    "temporaries",
    "inputs",
    "workspaces",
    "communication",
    "private_pools",
    "unattributed",
    "allocated",
    "active_pending_free",
    "inactive_split",
    "private_pool_idle",
    "reusable_cache",
    "reserved",
    "non_torch",
    "process",
    "other_processes",
    "device_unattributed",
    "driver_reserved",
    "device_free",
    "other_tenant",
)
_INK, _FILL, _PHASE, _PIN, _PAIR = 0x100, 0x140, 0x180, 0x1C0, 0x200
_PLACES = {key: place for place, key in enumerate(TENANTS)}


def ink(tenant: str) -> str:
    """The role of a tenant's letter in a text."""
    return chr(_INK + _PLACES.get(tenant, len(TENANTS) - 1))


def fill(tenant: str) -> str:
    """The role of a tenant's part of a bar."""
    return chr(_FILL + _PLACES.get(tenant, len(TENANTS) - 1))


def pin(tenant: str) -> str:
    """The role of a cell of a tenant's in which a block pins free memory."""
    return chr(_PIN + _PLACES.get(tenant, len(TENANTS) - 1))


#: What can lie on each other in one cell of a stacked area; an empty name is nothing, the background.
STACKED = (*CATEGORIES, "other_tenant", "")
_LEVELS = {key: place for place, key in enumerate(STACKED)}
_OTHER = STACKED.index("other_tenant")


def pair(lower: str, upper: str) -> str:
    """The role of a cell whose lower part is one tenant's and whose upper part another's."""
    return chr(_PAIR + len(STACKED) * _LEVELS.get(lower, _OTHER) + _LEVELS.get(upper, _OTHER))


def phase(name: str) -> str:
    """The role of a phase in the strip under the chart."""
    return chr(_PHASE + PHASES.index(name)) if name in PHASES else FAINT
