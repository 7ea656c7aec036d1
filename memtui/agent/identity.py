"""Which memory belongs to parameters, buffers, gradients and optimizer state: by the tensors themselves.

Runs on the training's thread only, outside backward: reading a gradient while backward writes it crashes the process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..wire.frames import Model, Optimizer
from .communication import gathered
from .pointers import NO_ADDRESS, beginnings, storage_beginning
from .recipes import recipe_of

if TYPE_CHECKING:
    from .readable import Readable

#: Options that decide how much state an optimizer makes.
_OPTIONS = ("momentum", "amsgrad", "centered", "foreach", "fused", "capturable", "maximize", "nesterov", "history_size")
STATE_DEPTH = 3
#: Before the category that the program itself has given to a tensor, as long as the two are told apart.
TAGGED = "tagged "
#: From the one that counts least to the one that counts most where tensors share memory.
_CATEGORIES = ("optimizer_state", "buffers", "gradients", "parameters", "communication")
_DICTIONARY = {dict}
_MOST_MODULES = 100_000
#: What a module that was not initialised may raise, or one whose members are no dictionaries.
_UNUSUAL = (KeyError, AttributeError, TypeError)
_gradient = attrgetter("grad")


@dataclass
class Addresses:
    """Of every tensor by category, those of the host too, 0 for one without memory: first those that count least.

    No two devices share an address, nor a device and the host: CUDA and ROCm have one address space.
    """

    below: list[tuple[str, list[int]]]  # what the program has named, state, buffers
    gradients: list[int]
    above: list[tuple[str, list[int]]]  # parameters, and what they are gathered in
    reads_gradients: bool = True  # else there may be some

    def in_order(self) -> list[tuple[str, list[int]]]:
        """All of them."""
        return [*self.below, ("gradients", self.gradients), *self.above]


class Walk:
    """One walk over what was discovered: the tensors of each category, found with little Python in between."""

    def __init__(self, torch: Any, readable: Readable) -> None:
        self._tensor = torch.Tensor
        self._beginnings, self._storage_beginning = beginnings(torch), storage_beginning(torch)
        self._readable = readable
        self._plain = {torch.Tensor, torch.nn.Parameter}
        self._parameters: list[Any] = []
        # By category, those that are plain tensors and those among which one is not.
        self._held: dict[str, tuple[list[Any], list[Any]]] = {name: ([], []) for name in _CATEGORIES}
        self._tagged: dict[str, tuple[list[Any], list[Any]]] = {}

    def roots(self, roots: Iterable[Any]) -> None:
        """Parameters with their gradients, and buffers, of root modules."""
        own: list[Any] = []
        others: list[Any] = []
        for root in roots:
            (own if self._readable.root(root) else others).append(root)
        self._members(own, gradients=True)
        if others:
            self._members(others, gradients=False)

    def _members(self, roots: list[Any], *, gradients: bool) -> None:
        modules, parameters, buffers = members(roots)
        for each in gathered(modules):
            self._hold(self._held["communication"], each.tensors)
            self._hold(self._held["parameters"], [each.shard])  # nobody else may have it meanwhile
        self._hold(self._held["buffers"], [buffer for buffer in buffers if buffer is not None])
        self._add([parameter for parameter in parameters if parameter is not None], gradients=gradients)

    def optimizers(self, optimizers: Iterable[Any]) -> None:
        """Parameters that only an optimizer holds, and the state."""
        known = set(map(id, self._parameters))
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                if not known.issuperset(map(id, group["params"])):
                    strange = [parameter for parameter in group["params"] if id(parameter) not in known]
                    self._add(strange, gradients=self._readable.optimizer(optimizer))
            states = list(optimizer.state.values())
            if not _DICTIONARY.issuperset(map(type, states)):
                for state in states:
                    self._add_state(state, 0)
                continue
            values: list[Any] = []
            for state in states:
                values += state.values()
            if self._plain.issuperset(map(type, values)):
                self._held["optimizer_state"][0].extend(values)
            else:
                for value in values:
                    self._add_state(value, 1)

    def tags(self, tagged: Iterable[tuple[str, str, Any]]) -> None:
        """What the program has named itself, and nobody else owns."""
        for _, category, what in tagged:
            held = [what] if isinstance(what, self._tensor) else [*what.parameters(), *what.buffers()]
            self._hold(self._tagged.setdefault(category, ([], [])), held)

    def _hold(self, into: tuple[list[Any], list[Any]], tensors: list[Any]) -> None:
        into[not self._plain.issuperset(map(type, tensors))].extend(tensors)

    def _add(self, parameters: list[Any], *, gradients: bool) -> None:
        self._parameters += parameters
        self._hold(self._held["parameters"], parameters)
        if gradients:
            self._hold(self._held["gradients"], [gradient for _, gradient in gradients_of(parameters)])

    def _add_state(self, value: Any, depth: int) -> None:
        if isinstance(value, self._tensor):
            self._held["optimizer_state"][1].append(value)
        elif depth < STATE_DEPTH and isinstance(value, (dict, list, tuple)):
            for item in list(value.values()) if isinstance(value, dict) else value:
                self._add_state(item, depth + 1)

    def addresses(self) -> Addresses:
        """Where all of them are."""
        found = {name: self._addresses_of(*held) for name, held in self._held.items()}
        return Addresses(
            below=[
                *((TAGGED + name, self._addresses_of(*held)) for name, held in self._tagged.items()),
                *((name, found[name]) for name in ("optimizer_state", "buffers")),
            ],
            gradients=found["gradients"],
            above=[(name, found[name]) for name in ("parameters", "communication")],
            reads_gradients=self._readable.anything,
        )

    def _addresses_of(self, plain: list[Any], odd: list[Any]) -> list[int]:
        try:
            found = self._beginnings(plain)
        except NO_ADDRESS:
            found, odd = [], plain + odd  # one of them: which is found out below
        for part in itertools.chain.from_iterable(map(parts, odd)):
            try:
                found += self._beginnings([part])
            except NO_ADDRESS:
                continue
        return found

    def host_bytes(self) -> dict[str, int]:
        """Bytes in host memory by category, each storage once."""
        seen: set[int] = set()
        totals: dict[str, int] = {}
        tagged = ((TAGGED + name, held) for name, held in self._tagged.items())
        for category, held in reversed([*tagged, *self._held.items()]):
            for part in itertools.chain.from_iterable(map(parts, itertools.chain(*held))):
                try:
                    if not part.is_cpu:
                        continue
                    address, size = self._storage_beginning(part), part.untyped_storage().nbytes()
                except NO_ADDRESS:
                    continue
                if address and address not in seen:
                    seen.add(address)
                    totals[category] = totals.get(category, 0) + size
        return totals


def members(roots: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Modules, parameters and buffers below the roots, None among them; what several share comes several times."""
    modules, parameters, buffers = roots.copy(), [], []
    try:
        # The list grows while it is gone through, and without end where a module is its own grandchild.
        for module in itertools.islice(modules, _MOST_MODULES):
            if module is not None:
                held = module.__dict__
                if children := held["_modules"]:
                    modules += children.values()
                if own := held["_parameters"]:
                    parameters += own.values()
                if own := held["_buffers"]:
                    buffers += own.values()
        if len(modules) <= _MOST_MODULES:
            return modules, parameters, buffers
    except _UNUSUAL:
        pass
    return _members_of_unusual(roots)


def _members_of_unusual(roots: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """The same where a module was not initialised, is a script's, or where they go round in a circle."""
    modules: dict[int, Any] = {}
    parameters: list[Any] = []
    buffers: list[Any] = []
    waiting = roots.copy()
    while waiting:
        module = waiting.pop()
        if module is None or id(module) in modules:
            continue
        modules[id(module)] = module
        held = module.__dict__
        for name, into in (("_parameters", parameters), ("_buffers", buffers), ("_modules", waiting)):
            if held.get(name):
                into.extend(held[name].values())
    return list(modules.values()), parameters, buffers


def gradients_of(parameters: list[Any]) -> list[tuple[int, Any]]:
    """Those that there are, each with its parameter's place."""
    # Asking a tensor that is not a leaf for its gradient prints a warning into the program's output.
    places = [place for place, parameter in enumerate(parameters) if parameter.is_leaf]
    # In C throughout: no other thread is given Python's lock in between.
    gradients = list(map(_gradient, [parameters[place] for place in places]))
    return [(place, gradient) for place, gradient in zip(places, gradients) if gradient is not None]


def parts(tensor: Any) -> tuple[Any, ...]:
    """The tensors that hold a tensor's memory: a DTensor's shard, a sparse tensor's values and indices."""
    try:
        tensor = getattr(tensor, "_local_tensor", tensor)
        return (tensor._values(), tensor._indices()) if tensor.is_sparse else (tensor,)
    except NO_ADDRESS:
        return ()


def describe(torch: Any, roots: list[Any], optimizers: list[Any], steps: dict[int, int], now_ns: int) -> Model:
    """What was discovered, for the viewer: sizes by device and dtype, optimizers and what decides their state."""
    bytes_by_device: dict[str, int] = {}
    bytes_by_dtype: dict[str, int] = {}
    count = trainable = 0
    seen: set[int] = set()
    for root in roots:
        for parameter in root.parameters():
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            device, size, elements = device_and_bytes(parameter)
            bytes_by_device[device] = bytes_by_device.get(device, 0) + size
            dtype = str(parameter.dtype).replace("torch.", "")
            bytes_by_dtype[dtype] = bytes_by_dtype.get(dtype, 0) + size
            count += elements
            trainable += elements if parameter.requires_grad else 0
    return Model(
        time_ns=now_ns,
        roots=tuple(type(root).__name__ for root in roots),
        parameters=count,
        trainable_parameters=trainable,
        parameter_bytes=bytes_by_device,
        dtypes=bytes_by_dtype,
        optimizers=tuple(_optimizer(torch, optimizer, steps.get(id(optimizer), 0)) for optimizer in optimizers),
    )


def device_and_bytes(tensor: Any) -> tuple[str, int, int]:
    """The device, bytes and elements of a tensor's own memory."""
    try:
        tensor = getattr(tensor, "_local_tensor", tensor)
        device = tensor.device
        name = "host" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
        elements = int(tensor.numel())
        return name, elements * int(tensor.element_size()), elements
    except NO_ADDRESS:
        return "meta", 0, 0


def _optimizer(torch: Any, optimizer: Any, steps: int) -> Optimizer:
    trainable: dict[str, int] = {}
    elements = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                device, size, number = device_and_bytes(parameter)
                trainable[device] = trainable.get(device, 0) + size
                elements += number
    state: dict[str, int] = {}
    for value in list(optimizer.state.values()):
        _add_state(torch, value, state, 0)
    options = {
        name: optimizer.defaults[name]
        for name in _OPTIONS
        if isinstance(optimizer.defaults.get(name), (bool, int, float))
    }
    return Optimizer(
        name=type(optimizer).__name__,
        options=options,
        trainable_bytes=trainable,
        trainable_parameters=elements,
        state_bytes=state or None,
        steps=steps,
        recipe=None if steps or state else recipe_of(optimizer, device_and_bytes),
    )


def _add_state(torch: Any, value: Any, total: dict[str, int], depth: int) -> None:
    if isinstance(value, torch.Tensor):
        device, size, _ = device_and_bytes(value)
        total[device] = total.get(device, 0) + size
    elif depth < STATE_DEPTH and isinstance(value, (dict, list, tuple)):
        for item in list(value.values()) if isinstance(value, dict) else value:
            _add_state(torch, item, total, depth + 1)
