"""The live tensors of each device, from what was noted on the training's thread: plain data, on the agent's thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from ..wire.frames import Tensor, Tensors
from .names import Named, Selected

#: Rows of a message; the rest is summed up.
MOST_ROWS = 200
_NAME_LENGTH = 300
#: The phase of birth, where a category has only one.
_BIRTHS = {"activations": "forward"}


@dataclass
class Memory:
    """One device at the instant: `live` blocks by address, and `births` of those that nobody owns.

    Where there are no blocks, `live` is None, and `rest` says what else is known of what is not owned.
    """

    device: str
    allocated_bytes: int
    live: Optional[dict[int, int]] = None
    segments: list[dict[str, Any]] = field(default_factory=list)  # as torch tells them, if they are wanted
    births: dict[int, tuple[int, str]] = field(default_factory=dict)
    rest: dict[str, int] = field(default_factory=dict)


@dataclass
class Taken:
    """Everything noted at one boundary."""

    time_ns: int
    step: int
    phase: str
    memories: list[Memory]
    selected: Selected
    cost_ns: int = 0
    wanted: frozenset[str] = frozenset(("tensors",))  # by the names of the requests
    settings: dict[str, Any] = field(default_factory=dict)  # of the allocator


@dataclass
class _Listed:
    """Rows of one device, and what has none."""

    rows: list[Tensor] = field(default_factory=list)
    small_count: int = 0


def messages(taken: Taken) -> list[Tensors]:
    """A message a device, which adds up to its `allocated_bytes` exactly."""
    return [_message(taken, memory) for memory in taken.memories]


def _message(taken: Taken, memory: Memory) -> Tensors:
    if memory.live is not None:
        listed = _by_blocks(taken.selected, memory, memory.live)
    else:
        listed = _by_storages(taken.selected, memory)
    rows = sorted(listed.rows, key=_by_size)
    shown = tuple(rows[:MOST_ROWS])
    return Tensors(
        time_ns=taken.time_ns,
        step=taken.step,
        phase=taken.phase,
        device=memory.device,
        allocated_bytes=memory.allocated_bytes,
        tensors=shown,
        others_count=listed.small_count + sum(row.count for row in rows[MOST_ROWS:]),
        others_bytes=memory.allocated_bytes - sum(row.size_bytes for row in shown),
        cost_ns=taken.cost_ns,
    )


def _by_size(row: Tensor) -> int:
    return -row.size_bytes


class _Owner:
    """Who a block belongs to, of several tensors that lie in it: who begins where it does, else the first found."""

    def __init__(self, named: Named) -> None:
        self.named = named
        self.addresses = {named.address}


def _by_blocks(selected: Selected, memory: Memory, live: dict[int, int]) -> _Listed:
    owned = set().union(*selected.addresses)
    owners = {start: _Owner(named) for start, named in selected.first.items() if start in live}
    for start, named in selected.inside:
        owner = owners.get(start)
        if owner is not None:
            owner.addresses.add(named.address)
        elif start in live and start not in owned:
            owners[start] = _Owner(named)
    listed = _Listed([_row(owner.named, live[start], len(owner.addresses) - 1) for start, owner in owners.items()])
    nobodys = live.keys() - owned - owners.keys()
    listed.small_count = len(live) - len(owners) - len(nobodys)
    alike: dict[tuple[int, str], int] = {}
    unknown = (-1, "")
    for address in nobodys:
        size = live[address]
        born, category = memory.births.get(address, unknown)
        key = (size, category if born == size else "unattributed")
        alike[key] = alike.get(key, 0) + 1
    for (size, category), count in alike.items():
        listed.rows.append(Tensor(category, size * count, phase=_BIRTHS.get(category, ""), count=count))
    return listed


def _by_storages(selected: Selected, memory: Memory) -> _Listed:
    listed = _Listed()
    seen: set[int] = set()
    owned_bytes = 0
    for _, devices, addresses, sizes in selected.storages:
        # A handful of devices, of thousands of tensors.
        here = {device for device in set(devices) if _device_name(device) == memory.device}
        for device, address, size in zip(devices, addresses, sizes):
            if device not in here or not address or address in seen:
                continue
            seen.add(address)
            owned_bytes += size
            named = selected.first.get(address)
            if named is None:
                listed.small_count += 1
            else:
                listed.rows.append(_row(named, size))
    known = {category: size for category, size in memory.rest.items() if size}
    known["unattributed"] = memory.allocated_bytes - owned_bytes - sum(known.values())
    listed.rows += [Tensor(category, size, phase=_BIRTHS.get(category, "")) for category, size in known.items() if size]
    return listed


def _device_name(device: Any) -> str:
    return "host" if device.type == "cpu" else f"{device.type}:{device.index or 0}"


def _row(named: Named, size_bytes: int, more: int = 0) -> Tensor:
    name = named.name[:_NAME_LENGTH]
    return Tensor(
        category=named.category,
        size_bytes=size_bytes,
        name=f"{name} + {more:,} more" if more else name,
        shape=tuple(map(int, named.shape)),
        dtype=str(named.dtype).replace("torch.", "", 1),
    )
