"""Which memory belongs to parameters, buffers, gradients and optimizer state: by the tensors themselves.

Runs on the training's thread only, outside backward: reading a gradient while backward writes it crashes the process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from ..wire.frames import Model, Optimizer

#: What a tensor that has no memory of its own may raise when asked for its address.
_NO_ADDRESS = (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError)
#: Options that decide how much state an optimizer makes.
_OPTIONS = ("momentum", "amsgrad", "centered", "foreach", "fused", "capturable", "maximize", "nesterov", "history_size")
_STATE_DEPTH = 3


class Walk:
    """One walk over what was discovered: the tensors of each category, found with little Python in between."""

    def __init__(self, torch: Any) -> None:
        self._tensor = torch.Tensor
        self._plain = {torch.Tensor, torch.nn.Parameter}
        self._parameters: list[Any] = []
        self._gradients: list[Any] = []
        self._buffers: list[Any] = []
        self._state: list[Any] = []

    def roots(self, roots: Iterable[Any]) -> None:
        """Parameters with their gradients, and buffers, of root modules."""
        parameters: list[Any] = []
        buffers: list[Any] = []
        waiting, seen = list(roots), set()
        while waiting:
            module = waiting.pop()
            if module is None or id(module) in seen:
                continue
            seen.add(id(module))
            held = module.__dict__
            if held.get("_parameters"):
                parameters.extend(held["_parameters"].values())
            if held.get("_buffers"):
                buffers.extend(held["_buffers"].values())
            if held.get("_modules"):
                waiting.extend(held["_modules"].values())
        self._buffers += [buffer for buffer in buffers if buffer is not None]
        self._add([parameter for parameter in parameters if parameter is not None])

    def optimizers(self, optimizers: Iterable[Any]) -> None:
        """Parameters that only an optimizer holds, and the state."""
        known = set(map(id, self._parameters))
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                self._add([parameter for parameter in group["params"] if id(parameter) not in known])
            for state in list(optimizer.state.values()):
                for value in list(state.values()) if isinstance(state, dict) else (state,):
                    if isinstance(value, self._tensor):
                        self._state.append(value)
                    else:
                        self._add_state(value, 1)

    def _add(self, parameters: list[Any]) -> None:
        self._parameters += parameters
        # Asking a tensor that is not a leaf for its gradient prints a warning into the program's output.
        gradients = [parameter.grad for parameter in parameters if parameter.is_leaf]
        self._gradients += [gradient for gradient in gradients if gradient is not None]

    def _add_state(self, value: Any, depth: int) -> None:
        if isinstance(value, self._tensor):
            self._state.append(value)
        elif depth < _STATE_DEPTH and isinstance(value, (dict, list, tuple)):
            for item in list(value.values()) if isinstance(value, dict) else value:
                self._add_state(item, depth + 1)

    def _categories(self) -> tuple[tuple[str, list[Any]], ...]:
        """From the one that counts least to the one that counts most where tensors share memory."""
        return (
            ("optimizer_state", self._state),
            ("buffers", self._buffers),
            ("gradients", self._gradients),
            ("parameters", self._parameters),
        )

    def addresses(self) -> dict[int, str]:
        """Address -> category of every tensor, those of the host too.

        No two devices share an address, nor a device and the host: CUDA and ROCm have one address space.
        """
        found: dict[int, str] = {}
        for category, tensors in self._categories():
            found.update(dict.fromkeys(self._addresses_of(tensors), category))
        found.pop(0, None)  # what has no memory
        return found

    def _addresses_of(self, tensors: list[Any]) -> list[int]:
        if self._plain.issuperset(map(type, tensors)):
            try:
                return list(map(self._tensor.data_ptr, tensors))
            except _NO_ADDRESS:
                pass  # one of them: found out below
        found = []
        for tensor in tensors:
            for part in _parts(tensor):
                try:
                    found.append(part.data_ptr())
                except _NO_ADDRESS:
                    continue
        return found

    def host_bytes(self) -> dict[str, int]:
        """Bytes in host memory by category, each storage once."""
        seen: set[int] = set()
        totals: dict[str, int] = {}
        for category, tensors in reversed(self._categories()):
            for part in itertools.chain.from_iterable(map(_parts, tensors)):
                try:
                    if not part.is_cpu:
                        continue
                    storage = part.untyped_storage()
                    address, size = storage.data_ptr(), storage.nbytes()
                except _NO_ADDRESS:
                    continue
                if address and address not in seen:
                    seen.add(address)
                    totals[category] = totals.get(category, 0) + size
        return totals


def _parts(tensor: Any) -> tuple[Any, ...]:
    """The tensors that hold a tensor's memory: a DTensor's shard, a sparse tensor's values and indices."""
    try:
        tensor = getattr(tensor, "_local_tensor", tensor)
        return (tensor._values(), tensor._indices()) if tensor.is_sparse else (tensor,)
    except _NO_ADDRESS:
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
            device, size, elements = _measure(parameter)
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


def _measure(tensor: Any) -> tuple[str, int, int]:
    try:
        tensor = getattr(tensor, "_local_tensor", tensor)
        device = tensor.device
        name = "host" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
        elements = int(tensor.numel())
        return name, elements * int(tensor.element_size()), elements
    except _NO_ADDRESS:
        return "meta", 0, 0


def _optimizer(torch: Any, optimizer: Any, steps: int) -> Optimizer:
    trainable: dict[str, int] = {}
    elements = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                device, size, number = _measure(parameter)
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
    )


def _add_state(torch: Any, value: Any, total: dict[str, int], depth: int) -> None:
    if isinstance(value, torch.Tensor):
        device, size, _ = _measure(value)
        total[device] = total.get(device, 0) + size
    elif depth < _STATE_DEPTH and isinstance(value, (dict, list, tuple)):
        for item in list(value.values()) if isinstance(value, dict) else value:
            _add_state(torch, item, total, depth + 1)
