"""Which of one device's blocks belong to tensors: looked up once, and then only whether anything has changed."""

from __future__ import annotations

import bisect
from typing import Optional

from .blocks import Blocks
from .identity import Addresses

_Sizes = dict[int, int]  # block's address -> bytes
_Found = tuple[dict[str, int], _Sizes]


class Holdings:
    """What the last walk found, by block: the kept, which stay from step to step, and gradients, which come and go.

    Nothing here refers to a tensor. As long as every tensor is where it was, the blocks that they are in are the
    same ones with the same sizes, and what has to be read is the rest.
    """

    def __init__(self) -> None:
        self._addresses: Optional[Addresses] = None  # those that `_kept` was found for
        self._kept: _Sizes = {}
        self._filled: dict[int, int] = {}  # segment's address -> bytes of the kept in it
        self._kept_bytes = 0
        self._totals: dict[str, int] = {}
        self._within = False  # whether there is a kept block at whose beginning no tensor begins
        self._by_category: dict[str, _Sizes] = {}  # all that is owned
        self._gradients: _Sizes = {}

    def find(self, blocks: Blocks, addresses: Addresses) -> _Found:
        """Bytes by category, and the blocks that no tensor owns."""
        before = self._addresses
        found = None
        if before is not None and addresses.below == before.below and addresses.above == before.above:
            found = self._told_by_the_rest(blocks, addresses.gradients)
        if found is None:
            self._look_up(blocks, addresses)
            found = self._told_by_the_rest(blocks, addresses.gradients)
        return found or self._told_together(blocks, addresses)

    def still(self, blocks: Blocks) -> _Found:
        """The same while tensors may not be asked: what was owned, and is there with the same size, is owned."""
        live = blocks.live
        owned: _Sizes = {}
        totals: dict[str, int] = {}
        for category, held in (*self._by_category.items(), ("gradients", self._gradients)):
            alive = {address: size for address, size in held.items() if live.get(address) == size}
            totals[category] = totals.get(category, 0) + sum(alive.values())
            owned.update(alive)
        rest = {address: size for address, size in live.items() if address not in owned}
        blocks.split(owned, rest)
        return totals, rest

    def owner(self, address: int, size_bytes: int) -> Optional[str]:
        """The category of a block, as of the last walk; None where there was another one of another size."""
        if self._gradients.get(address) == size_bytes:
            return "gradients"
        found = self._by_category.items()
        return next((category for category, held in found if held.get(address) == size_bytes), None)

    def _look_up(self, blocks: Blocks, addresses: Addresses) -> None:
        self._by_category, self._within = _owned(blocks.live, [*addresses.below, *addresses.above])
        self._totals = {category: sum(held.values()) for category, held in self._by_category.items()}
        self._kept = _together(self._by_category)
        self._kept_bytes = sum(self._totals.values())
        self._filled = blocks.bytes_in_segments(self._kept)
        self._addresses = addresses

    def _told_by_the_rest(self, blocks: Blocks, addresses: list[int]) -> Optional[_Found]:
        """None where something is not as it was, or a gradient shares memory with what is kept."""
        rest = blocks.beside(self._kept, self._filled)
        if sum(rest.values()) + self._kept_bytes != blocks.allocated_bytes:
            return None
        gradients = self._gradients_in(rest, addresses)
        if gradients is None:
            return None
        self._gradients = gradients
        blocks.split(self._kept, rest)
        totals = {**self._totals, "gradients": self._totals.get("gradients", 0) + sum(gradients.values())}
        if gradients:
            rest = {address: size for address, size in rest.items() if address not in gradients}
        return totals, rest

    def _gradients_in(self, rest: _Sizes, addresses: list[int]) -> Optional[_Sizes]:
        if not self._kept.keys().isdisjoint(addresses):
            return None
        sizes = list(map(rest.get, addresses))
        if None not in sizes:
            return dict(zip(addresses, sizes))  # type: ignore[arg-type]
        if self._within:
            return None
        found = {address: size for address, size in zip(addresses, sizes) if size is not None}
        for start in _starts(rest, [address for address in addresses if address not in found]):
            found[start] = rest[start]
        return found

    def _told_together(self, blocks: Blocks, addresses: Addresses) -> _Found:
        """Everything looked up, where it cannot be told in parts."""
        live = blocks.live
        self._by_category, _ = _owned(live, addresses.in_order())
        self._addresses, self._gradients = None, {}
        owned = _together(self._by_category)
        rest = {address: size for address, size in live.items() if address not in owned}
        blocks.split(owned, rest)
        return {category: sum(held.values()) for category, held in self._by_category.items()}, rest


def _together(by_category: dict[str, _Sizes]) -> _Sizes:
    found: _Sizes = {}
    for held in by_category.values():
        found.update(held)
    return found


def _owned(live: _Sizes, addresses: list[tuple[str, list[int]]]) -> tuple[dict[str, _Sizes], bool]:
    """Blocks by category, and whether a tensor has one at whose beginning none begins.

    Who begins at a block's beginning has it, else who counts most; of several there, the last.
    """
    categories: dict[int, str] = {}
    for category, found in addresses:
        categories.update(dict.fromkeys(found, category))
    owned: dict[str, _Sizes] = {category: {} for category, _ in addresses}
    elsewhere = []
    for address, category in categories.items():
        size = live.get(address)
        if size is None:
            elsewhere.append(address)
        else:
            owned[category][address] = size
    inside = 0
    starts = sorted(live)
    high = starts[-1] + live[starts[-1]] if starts else 0
    for address in reversed(elsewhere):
        if not (address < high and starts[0] < address):
            continue  # the host's, mostly, or without memory
        start = _start(live, starts, address)
        if start is not None and start not in categories:
            inside += 1
            categories[start] = categories[address]
            owned[categories[address]][start] = live[start]
    return owned, inside > 0


def _starts(live: _Sizes, addresses: list[int]) -> set[int]:
    """The beginnings of the blocks that these addresses are in."""
    starts = sorted(live)
    found = {_start(live, starts, address) for address in addresses if address}
    return {start for start in found if start is not None}


def _start(live: _Sizes, starts: list[int], address: int) -> Optional[int]:
    place = bisect.bisect_right(starts, address) - 1
    if place < 0:
        return None
    start = starts[place]
    return start if address < start + live[start] else None
