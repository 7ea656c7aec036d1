"""Categories of one device's live blocks: by identity, else by the phase in which a block was born."""

from __future__ import annotations

import bisect

from ..wire.frames import CATEGORIES, Classification
from .blocks import Blocks

#: What memory born in a phase is, where no parameter, gradient or state owns it.
_BORN = {
    "startup": "inputs",
    "between": "inputs",
    "forward": "activations",
    "backward": "temporaries",
    "optimizer": "temporaries",
}

#: Born in backward or in the optimizer, and looked at before gradients and state could be told apart.
_UNDECIDED = "undecided"


class Births:
    """Remembers of one device's unowned blocks in which phase they were born.

    That is known only of a block that appears between two looks with a single phase between them; of any other it is
    unknown, and the block unattributed.
    """

    def __init__(self, workspace_bytes: frozenset[int]) -> None:
        self._workspaces = workspace_bytes
        self._known: dict[int, tuple[int, str]] = {}  # address -> bytes, category
        self._owners: dict[int, str] = {}
        self._sizes: dict[int, int] = {}  # of the blocks that had these owners

    def classify(
        self, blocks: Blocks, owned: dict[int, str] | None, phase: str, *, certain: bool, step_ended: bool
    ) -> dict[str, int]:
        """Bytes by category; they add up to the blocks' live bytes exactly.

        `owned` maps addresses of tensors to categories; None while gradients may not be read (in mid-phase): then
        the owners of the last walk hold, and what backward has made is not told apart yet. `phase` is the one that
        has gone on since the last look; `certain` that there was no other.
        """
        live = blocks.live
        if owned is not None:
            self._owners, self._sizes = _owners(live, owned), live
        owners, sizes, known, workspaces = self._owners, self._sizes, self._known, self._workspaces
        born = _BORN.get(phase, "unattributed") if certain else "unattributed"
        undecided = owned is None and phase in ("backward", "optimizer")
        totals = dict.fromkeys(CATEGORIES, 0)
        births: dict[int, tuple[int, str]] = {}
        newborn = (0, born)
        if undecided:
            born = _UNDECIDED
        totals[_UNDECIDED] = 0
        for address, size in live.items():
            owner = owners.get(address)
            if owner is not None and sizes.get(address) == size:
                totals[owner] += size
                continue
            birth = known.get(address, newborn)
            if birth[0] != size:
                birth = (size, born)
            elif birth[1] == _UNDECIDED and owned is not None:
                birth = (size, "temporaries")  # neither a gradient nor state, now that these are known
            totals[birth[1]] += size
            births[address] = birth
        totals["unattributed"] += totals.pop(_UNDECIDED)
        if step_ended and workspaces:
            self._find_workspaces(births, totals)
        self._known = births
        return totals

    def _find_workspaces(self, births: dict[int, tuple[int, str]], totals: dict[str, int]) -> None:
        # Many activations have the size of a workspace; few of them outlive the step.
        for address, (size, category) in births.items():
            if size in self._workspaces and category != "workspaces":
                births[address] = (size, "workspaces")
                totals[category] -= size
                totals["workspaces"] += size


def _owners(live: dict[int, int], owned: dict[int, str]) -> dict[int, str]:
    """Block address -> category, among others: a tensor may begin anywhere in its block.

    The owner at a block's beginning counts, else the last one.
    """
    if not live:
        return owned
    low, high = min(live), max(live)
    high += live[high]
    inside = [address for address in owned if low <= address < high and address not in live]
    if not inside:
        return owned
    found, starts = dict(owned), sorted(live)
    for address in reversed(inside):
        start = starts[bisect.bisect_right(starts, address) - 1]
        if address < start + live[start]:
            found.setdefault(start, owned[address])
    return found


def host_categories(allocated_bytes: int, owned_bytes: dict[str, int], born_bytes: int) -> dict[str, int]:
    """Categories of the host's heap, which has no blocks to look at.

    Tensors that are owned, by their bytes; `born_bytes`, the heap's growth since the forward began, as activations;
    the rest (Python's objects, libraries, inputs) is unattributed.
    """
    totals = dict.fromkeys(CATEGORIES, 0)
    totals.update(owned_bytes)
    totals["activations"] = max(0, born_bytes)
    totals["unattributed"] = allocated_bytes - sum(totals.values())
    return totals


def aged(time_ns: int, now_ns: int, phase: str, step: int, categories: dict[str, int]) -> Classification:
    """A classification of `time_ns` for a frame of `now_ns`; categories of no bytes are left out."""
    return Classification(
        age_ns=max(0, now_ns - time_ns),
        allocated_bytes=sum(categories.values()),
        phase=phase,
        step=step,
        categories={name: size for name, size in categories.items() if size},
    )
