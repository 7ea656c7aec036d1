"""Categories of one device's live blocks: by identity, else by the phase in which a block was born."""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import Optional

from ..wire.frames import CATEGORIES
from .blocks import Blocks
from .holdings import Holdings
from .identity import TAGGED, Addresses

#: What memory born in a phase is, where no parameter, gradient or state owns it.
_BORN = {
    "startup": "inputs",
    "between": "inputs",
    "forward": "activations",
    "evaluation": "temporaries",
    "backward": "temporaries",
    "optimizer": "temporaries",
}

#: Born in backward or in the optimizer, and looked at before gradients and state could be told apart.
_UNDECIDED = "undecided"
#: Of blocks in private pools it is known that they are born only where they were not there before, in one of these.
_BORN_IN_POOLS = ("activations", "temporaries", _UNDECIDED)
_NOTHING = dict.fromkeys((*CATEGORIES, _UNDECIDED), 0)


#: A batch has fewer tensors.
_MOST_INPUTS = 8


class Births:
    """Remembers of one device's unowned blocks in which phase they were born.

    That is known only of a block that appears between two looks with a single phase between them; of any other it is
    unknown, and the block unattributed. Of a block in the pool of a CUDA graph or a MemPool at least that is known: a
    graph keeps what it has captured, also what no tensor refers to any more (gradients that were set to None).
    """

    def __init__(self, workspace_bytes: frozenset[int]) -> None:
        self.tagged: dict[str, int] = {}  # bytes by category, at the last look, of what the program has named
        self._workspaces = workspace_bytes
        self._born: dict[str, dict[int, int]] = {}  # category -> address -> bytes; exchanged as a whole
        self._holdings = Holdings()
        self._private: dict[int, int] = {}  # live in private pools at the last look
        self._buckets: dict[int, int] = {}  # address -> bytes, also while gradients lie in them

    @property
    def strays(self) -> int:
        """Bytes of what was made before forward, in more pieces than batches are: perhaps a copied model."""
        held = self._born.get("inputs", {})
        return sum(held.values()) if len(held) > _MOST_INPUTS else 0

    @property
    def largest_activation_bytes(self) -> int:
        """Of the activations at the last look."""
        return max(self._born.get("activations", {}).values(), default=0)

    @property
    def known(self) -> dict[int, tuple[int, str]]:
        """Bytes and category of each block that nobody owned at the last look, by address."""
        return {address: (size, name) for name, held in self._born.items() for address, size in held.items()}

    @property
    def undecided_bytes(self) -> int:
        """Of what was born in the backward pass or optimizer step under way, at the last look."""
        return sum(self._born.get(_UNDECIDED, {}).values())

    def category_of(self, address: int, size_bytes: int) -> str:
        """Of a live block, at the last look; "" where it is not known."""
        owner = self._holdings.owner(address, size_bytes)
        if owner is not None:
            return owner[len(TAGGED) :] if owner.startswith(TAGGED) else owner
        found = next((category for category, held in self._born.items() if held.get(address) == size_bytes), "")
        return "" if found in (_UNDECIDED, "unattributed") else found

    def classify(
        self, blocks: Blocks, addresses: Optional[Addresses], phase: str, *, certain: bool, step_ended: bool
    ) -> dict[str, int]:
        """Bytes by category; they add up to the blocks' live bytes exactly.

        `addresses` are those of tensors; None while gradients may not be read (in mid-phase): then the owners of the
        last walk hold, and what backward has made is not told apart yet; nor is it where the walk has read none.
        `phase` is the one that has gone on since the last look; `certain` that there was no other.
        """
        if addresses is None:
            found, rest = self._holdings.still(blocks)
        else:
            found, rest = self._holdings.find(blocks, addresses)
        born = _BORN.get(phase, "unattributed") if certain else "unattributed"
        decided = addresses is not None and addresses.reads_gradients
        if (phase == "backward" and not decided) or (phase == "optimizer" and addresses is None):
            born = _UNDECIDED
        births = self._births(rest, born, blocks.private, decided=decided)
        if step_ended:
            births = self._kept(births, blocks.matching)
        elif blocks.alone.difference(self._buckets):
            births = self._told_apart(births, blocks.alone)
        totals = {**_NOTHING}
        self.tagged = _add(found, totals)
        for category, held in births.items():
            totals[category] += sum(held.values())
        totals["unattributed"] += totals.pop(_UNDECIDED)
        buckets = blocks.matching.keys() if step_ended else blocks.alone
        if self._buckets or buckets:
            self._remember_buckets(blocks, births, buckets)
        self._born, self._private = births, blocks.private
        return totals

    def _births(
        self, rest: dict[int, int], born: str, private: dict[int, int], *, decided: bool
    ) -> dict[str, dict[int, int]]:
        """Blocks that nobody owns, by category: those that were there, and what is new."""
        births: dict[str, dict[int, int]] = {}
        count = 0
        for category, before in self._born.items():
            # Mostly all are still there, or none.
            alive = before
            if list(map(rest.get, before)) != list(before.values()):
                alive = {address: size for address, size in before.items() if rest.get(address) == size}
            name = category
            if category == _UNDECIDED and decided:
                name = "temporaries"  # neither a gradient nor state, now that these are known
            if alive:
                births[name] = {**births[name], **alive} if name in births else alive
                count += len(alive)
        if count < len(rest):
            known = set().union(*births.values())
            new = {address: size for address, size in rest.items() if address not in known} if known else rest
            if private:
                held = {address: size for address, size in new.items() if self._is_old_in_pool(address, private, born)}
                births["private_pools"] = {**births.get("private_pools", {}), **held}
                new = {address: size for address, size in new.items() if address not in held}
            births[born] = {**births[born], **new} if born in births else new
        return births

    def _is_old_in_pool(self, address: int, private: dict[int, int], born: str) -> bool:
        return address in private and (born not in _BORN_IN_POOLS or self._private.get(address) == private[address])

    @staticmethod
    def _told_apart(births: dict[str, dict[int, int]], buckets: set[int]) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for category, held in births.items():
            for address, size in held.items():
                found.setdefault("communication" if address in buckets else category, {})[address] = size
        return found

    def _kept(self, births: dict[str, dict[int, int]], buckets: Container[int]) -> dict[str, dict[int, int]]:
        # Many activations have the size of a workspace or a bucket; few of them outlive the step.
        found: dict[str, dict[int, int]] = {}
        for category, held in births.items():
            for address, size in held.items():
                kept = "communication" if address in buckets else "workspaces" if size in self._workspaces else category
                found.setdefault(kept, {})[address] = size
        return found

    def _remember_buckets(self, blocks: Blocks, births: dict[str, dict[int, int]], buckets: Collection[int]) -> None:
        """Buckets stay known while gradients lie in them; who is in `births` already stays there."""
        live = blocks.live
        still = {address: size for address, size in self._buckets.items() if live.get(address) == size}
        self._buckets = {**still, **{address: live[address] for address in buckets}}
        others = set().union(*births.values())
        hidden = {address: size for address, size in self._buckets.items() if address not in others}
        if hidden:
            births["communication"] = {**births.get("communication", {}), **hidden}


def _add(found: dict[str, int], totals: dict[str, int]) -> dict[str, int]:
    """Adds what tensors own; bytes by category of the part that the program has named."""
    tagged: dict[str, int] = {}
    for key, size in found.items():
        category = key
        if key.startswith(TAGGED):
            category = key[len(TAGGED) :]
            tagged[category] = size
        totals[category] += size
    return tagged


def host_categories(
    allocated_bytes: int, owned_bytes: dict[str, int], born_bytes: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Categories of the host's heap, which has no blocks to look at; and how much of each the program has named.

    Tensors that are owned, by their bytes; `born_bytes`, the heap's growth since the forward began, as activations;
    the rest (Python's objects, libraries, inputs) is unattributed.
    """
    totals = dict.fromkeys(CATEGORIES, 0)
    tagged = _add(owned_bytes, totals)
    totals["activations"] += max(0, born_bytes)
    totals["unattributed"] = allocated_bytes - sum(totals.values())
    return totals, tagged
