"""Which memory belongs to parameters, buffers, gradients and optimizer state: by the tensors themselves.

Runs on the training's thread only, outside backward: reading a gradient while backward writes it crashes the process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..wire.frames import Model, Optimizer

#: What a tensor that has no memory of its own may raise when asked for its address.
_NO_ADDRESS = (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError)
#: Options that decide how much state an optimizer makes.
_OPTIONS = ("momentum", "amsgrad", "centered", "foreach", "fused", "capturable", "maximize", "nesterov", "history_size")
_STATE_DEPTH = 3


class Owned:
    """Addresses on each accelerator, bytes on the host, by category."""

    def __init__(self) -> None:
        self.addresses: dict[str, dict[int, str]] = {}  # device -> address -> category
        self.host_bytes: dict[str, int] = {}
        self._host_seen: set[int] = set()

    def add(self, tensor: Any, category: str) -> int:
        """Notes one tensor; returns the bytes of its elements, 0 where it has none of its own."""
        try:
            tensor = getattr(tensor, "_local_tensor", tensor)  # a DTensor's shard
            device = tensor.device
            if device.type == "cpu":
                storage = tensor.untyped_storage()
                address, size = storage.data_ptr(), storage.nbytes()
                if address and address not in self._host_seen:
                    self._host_seen.add(address)
                    self.host_bytes[category] = self.host_bytes.get(category, 0) + size
            elif device.type != "meta":
                address = tensor.data_ptr()
                if address:
                    key = f"{device.type}:{device.index or 0}"
                    self.addresses.setdefault(key, {}).setdefault(address, category)
            return int(tensor.numel() * tensor.element_size())
        except _NO_ADDRESS:
            return 0


class Walk:
    """One walk over what was discovered."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.owned = Owned()
        self._seen: set[int] = set()
        self._sizes: dict[int, tuple[str, int]] = {}

    def roots(self, roots: Iterable[Any]) -> None:
        """Parameters with their gradients, then buffers, of root modules."""
        for root in roots:
            for parameter in root.parameters():
                self._parameter(parameter)
        for root in roots:
            for buffer in root.buffers():
                self.owned.add(buffer, "buffers")

    def optimizers(self, optimizers: Iterable[Any]) -> None:
        """Parameters that only an optimizer holds, and the state."""
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self._parameter(parameter)
            for state in list(optimizer.state.values()):
                self._state(state, 0)

    def _parameter(self, parameter: Any) -> None:
        if id(parameter) in self._seen:
            return
        self._seen.add(id(parameter))
        self.owned.add(parameter, "parameters")
        # Asking a tensor that is not a leaf for its gradient prints a warning into the program's output.
        gradient = parameter.grad if parameter.is_leaf else None
        if gradient is not None:
            self._gradient(gradient)

    def _gradient(self, gradient: Any) -> None:
        if gradient.is_sparse:
            self.owned.add(gradient._values(), "gradients")
            self.owned.add(gradient._indices(), "gradients")
        else:
            self.owned.add(gradient, "gradients")

    def _state(self, value: Any, depth: int) -> None:
        if isinstance(value, self._torch.Tensor):
            self.owned.add(value, "optimizer_state")
        elif depth < _STATE_DEPTH and isinstance(value, dict):
            for item in list(value.values()):
                self._state(item, depth + 1)
        elif depth < _STATE_DEPTH and isinstance(value, (list, tuple)):
            for item in value:
                self._state(item, depth + 1)


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
