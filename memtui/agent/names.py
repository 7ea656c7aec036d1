"""Tensors with the names that the program's own modules and optimizers give them.

Runs on the training's thread only, outside backward, as `identity` does. What it leaves behind is plain data: names,
addresses, shapes; no tensor is kept. All addresses are read, which takes little Python; names and shapes only of those
that will be told.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from .communication import gathered
from .identity import STATE_DEPTH, gradients_of, members, parts
from .pointers import NO_ADDRESS, beginnings, storage_beginning
from .submodules import joined, submodules

if TYPE_CHECKING:
    from .readable import Readable

#: Address -> category and name.
Owners = dict[int, tuple[str, str]]


class Named(NamedTuple):
    """One tensor; `address` is its own, or its storage's where there are no blocks."""

    category: str
    name: str
    address: int
    shape: tuple[int, ...]
    dtype: Any


@dataclass
class Selected:
    """The largest tensors with their names, and where all the others are."""

    #: By the address at which a block (or a storage) begins: who begins there, of several the one that counts most.
    first: dict[int, Named] = field(default_factory=dict)
    #: (beginning of the block, a tensor further inside).
    inside: list[tuple[int, Named]] = field(default_factory=list)
    addresses: list[list[int]] = field(default_factory=list)  # of all tensors, those that count most first
    categories: list[str] = field(default_factory=list)  # of each of these lists
    #: (category, devices, addresses, bytes) of all storages, where there are no blocks.
    storages: list[tuple[str, list[Any], list[int], list[int]]] = field(default_factory=list)


class _Held:
    """Tensors of one category and their names."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.tensors: list[Any] = []

    def add(self, name: str, tensor: Any) -> None:
        self.names.append(name)
        self.tensors.append(tensor)

    def name(self, place: int) -> str:
        return self.names[place]


class _Gradients(_Held):
    """Named after their parameters."""

    def name(self, place: int) -> str:
        return f"{self.names[place]} (gradient)"


class _State(_Held):
    """An optimizer's: names are put together when they are asked for, of few among many."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: list[int] = []
        self._of: list[tuple[str, Any]] = []  # a parameter's name, and its state

    def extend(self, name: str, kept: Any, values: list[Any]) -> None:
        self.tensors += values
        self._ends.append(len(self.tensors))
        self._of.append((name, kept))

    def add(self, name: str, tensor: Any) -> None:
        self.extend(name, None, [tensor])

    def name(self, place: int) -> str:
        which = bisect.bisect_right(self._ends, place)
        name, kept = self._of[which]
        if kept is None:
            return name
        return f"{name} {list(kept)[place - self._ends[which]]}"  # counted from the end of this one's values


class Names:
    """One walk over what was discovered, with names."""

    def __init__(self, torch: Any, readable: Readable) -> None:
        self._readable = readable
        self._asked: set[int] = set()  # parameters, by id, whose gradients may be read, where not all may
        self._tensor, self._module, self._storage = torch.Tensor, torch.nn.Module, torch.UntypedStorage
        self._beginnings, self._storage_beginning = beginnings(torch), storage_beginning(torch)
        self._plain = {torch.Tensor, torch.nn.Parameter}
        self._names: dict[int, str] = {}  # of parameters and buffers, by id
        self._parameters, self._buffers, self._state, self._gathered = _Held(), _Held(), _State(), _Held()
        self._tagged: dict[str, _Held] = {}

    def roots(self, roots: Iterable[Any]) -> None:
        """Parameters and buffers as `named_parameters` names them, after the root's class where there are several."""
        tops = list(roots)
        if not self._readable.everything:
            own = [root for root in tops if self._readable.root(root)]
            self._asked.update(map(id, members(own)[1]))
        modules = submodules(tops)
        for title, _, module in modules:
            self._add_members(title, module, self._parameters, self._buffers, self._names)
        titles: dict[int, str] = {}
        for each in gathered([module for _, _, module in modules]):
            titles = titles or {id(module): title for title, _, module in modules}
            name = joined(titles.get(id(each.module), ""), each.key)
            if id(each.shard) not in self._names:  # while the whole parameter stands in its place
                self._names[id(each.shard)] = name
                self._parameters.add(name, each.shard)
            for tensor in each.tensors:
                self._gathered.add(f"{name} (gathered)", tensor)

    @staticmethod
    def _add_members(title: str, module: Any, parameters: _Held, buffers: _Held, names: dict[int, str]) -> None:
        """What a module itself holds; what several share has the name that comes first."""
        held = module.__dict__
        for into, table in ((parameters, held.get("_parameters")), (buffers, held.get("_buffers"))):
            for key, tensor in table.items() if table else ():
                if tensor is not None and id(tensor) not in names:
                    names[id(tensor)] = name = joined(title, key)
                    into.names.append(name)
                    into.tensors.append(tensor)

    def optimizers(self, optimizers: Iterable[Any]) -> None:
        """Parameters that only an optimizer holds, and the state: "layers.0.weight exp_avg"."""
        names, state, plain = self._names, self._state, self._plain
        for optimizer in optimizers:
            kind = type(optimizer).__name__
            held = itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups)
            own = self._readable.optimizer(optimizer)
            for place, parameter in enumerate(held):
                if own:
                    self._asked.add(id(parameter))
                if id(parameter) not in names:
                    names[id(parameter)] = name = f"{kind} parameter {place}"
                    self._parameters.add(name, parameter)
            for parameter, kept in list(optimizer.state.items()):
                name = names.get(id(parameter), kind)
                if not isinstance(kept, dict):
                    self._add_state(name, kept, 1)
                    continue
                values = list(kept.values())
                if plain.issuperset(map(type, values)):
                    state.extend(name, kept, values)
                else:
                    for key, value in list(kept.items()):
                        self._add_state(f"{name} {key}", value, 1)

    def _add_state(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, self._tensor):
            self._state.add(name, value)
        elif depth < STATE_DEPTH and isinstance(value, dict):
            for key, item in list(value.items()):
                self._add_state(f"{name}.{key}", item, depth + 1)
        elif depth < STATE_DEPTH and isinstance(value, (list, tuple)):
            for place, item in enumerate(value):
                self._add_state(f"{name}.{place}", item, depth + 1)

    def tags(self, tagged: Iterable[tuple[str, str, Any]]) -> None:
        """What the program has named itself."""
        for name, category, what in tagged:
            into = self._tagged.setdefault(category, _Held())
            if isinstance(what, self._module):
                names: dict[int, str] = {}
                for title, _, module in submodules([what]):
                    self._add_members(joined(name, title) if title else name, module, into, into, names)
            else:
                into.add(name, what)

    def _found(self) -> list[_Found]:
        """From the category that counts most to the one that counts least where tensors share memory."""
        asked = [
            (name, parameter)
            for name, parameter in zip(self._parameters.names, self._parameters.tensors)
            if self._readable.everything or id(parameter) in self._asked
        ]
        gradients = _Gradients()
        for place, gradient in gradients_of([parameter for _, parameter in asked]):
            gradients.add(asked[place][0], gradient)
        categories = (
            ("communication", self._gathered),
            ("parameters", self._parameters),
            ("gradients", gradients),
            ("buffers", self._buffers),
            ("optimizer_state", self._state),
            *self._tagged.items(),
        )
        return [_Found(category, held, self._plain) for category, held in categories]

    def owners(self) -> Owners:
        """All of them by address; where several share one, the one that counts most has it."""
        found: Owners = {}
        for each in reversed(self._found()):
            for place, address in enumerate(each.pointers(self._beginnings)):
                found[address] = (each.category, each.name(place))
        found.pop(0, None)  # what has no memory
        return found

    def select(self, live: Optional[dict[int, int]], most: int) -> Selected:
        """The tensors of the `most` largest blocks that have an owner; `live` are all blocks, bytes by address.

        Without blocks (None), of the largest storages.
        """
        selected = Selected()
        found = self._found()
        for each in found:
            if live is not None:
                each.addresses = each.pointers(self._beginnings)
                each.sizes = list(map(live.get, each.addresses))
                selected.addresses.append(each.addresses)
                selected.categories.append(each.category)
            else:
                selected.storages.append(each.read_storages(self._tensor, self._storage, self._storage_beginning))
        _take_largest(found, selected.first, most)
        if live:
            _take_inside(found, live, selected.inside)
        return selected


class _Found:
    """Tensors of one category that may have memory, where it is and how much."""

    def __init__(self, category: str, held: _Held, plain: set[type]) -> None:
        self.category, self._held = category, held
        self.tensors: list[Any] = held.tensors
        self._places: Optional[list[int]] = None  # of `tensors` in what is held
        self.addresses: list[int] = []
        self.sizes: list[Optional[int]] = []  # None: it does not begin where a block does
        if not plain.issuperset(map(type, held.tensors)):
            pairs = [(part, place) for place, whole in enumerate(held.tensors) for part in parts(whole)]
            self.tensors, self._places = [part for part, _ in pairs], [place for _, place in pairs]

    def name(self, place: int) -> str:
        return self._held.name(place if self._places is None else self._places[place])

    def named(self, place: int) -> Named:
        tensor = self.tensors[place]
        return Named(self.category, self.name(place), self.addresses[place], tensor.shape, tensor.dtype)

    def pointers(self, read: Callable[[list[Any]], list[int]]) -> list[int]:
        try:
            return read(self.tensors)
        except NO_ADDRESS:
            return [_pointer(tensor, read) for tensor in self.tensors]

    def read_storages(
        self, kind: Any, storage: Any, beginning: Callable[[Any], int]
    ) -> tuple[str, list[Any], list[int], list[int]]:
        try:
            storages = list(map(kind.untyped_storage, self.tensors))
            self.addresses = list(map(beginning, self.tensors))
        except NO_ADDRESS:
            pairs = [
                (place, tensor) for place, tensor in enumerate(self.tensors) if _storage_pointer(tensor, beginning)
            ]
            before = self._places
            self._places = [place if before is None else before[place] for place, _ in pairs]
            self.tensors = [tensor for _, tensor in pairs]
            storages = list(map(kind.untyped_storage, self.tensors))
            self.addresses = list(map(beginning, self.tensors))
        sizes = list(map(storage.nbytes, storages))
        self.sizes = [*sizes]
        return self.category, list(map(kind.device.__get__, self.tensors)), self.addresses, sizes


def _take_largest(found: list[_Found], first: dict[int, Named], most: int) -> None:
    sizes = sorted(filter(None, itertools.chain.from_iterable(each.sizes for each in found)), reverse=True)
    least = sizes[most - 1] if len(sizes) >= most else 0
    room = most - sizes.index(least) if least else 0  # of those that are just as large
    for each in found:
        addresses = each.addresses
        for place, size in enumerate(each.sizes):
            if not size or size < least or (size == least and room <= 0):
                continue
            address = addresses[place]
            if address and address not in first:
                first[address] = each.named(place)
                room -= size == least


def _take_inside(found: list[_Found], live: dict[int, int], inside: list[tuple[int, Named]]) -> None:
    starts: list[int] = []
    low, high = min(live), max(live)
    high += live[high]
    for each in found:
        for place, size in enumerate(each.sizes):
            if size is None and low <= each.addresses[place] < high:
                starts = starts or sorted(live)
                address = each.addresses[place]
                start = starts[bisect.bisect_right(starts, address) - 1]
                if address < start + live[start]:
                    inside.append((start, each.named(place)))


def _pointer(tensor: Any, read: Callable[[list[Any]], list[int]]) -> int:
    try:
        return read([tensor])[0]
    except NO_ADDRESS:
        return 0


def _storage_pointer(tensor: Any, beginning: Callable[[Any], int]) -> int:
    try:
        return beginning(tensor)
    except NO_ADDRESS:
        return 0
