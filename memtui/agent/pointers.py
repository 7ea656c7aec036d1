"""Where the memory of tensors is, asked for without touching it.

`Tensor.data_ptr`, and its storage's, is an address that may be written to: of a lazy clone, and of what it was cloned
from, it is one of a copy that is made for the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: What a tensor that has no memory of its own may raise when asked for its address.
NO_ADDRESS = (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError)


def beginnings(torch: Any) -> Callable[[list[Any]], list[int]]:
    """What tells where tensors begin; 0 for one without memory."""
    read = getattr(torch.Tensor, "const_data_ptr", None)
    if read is not None:
        return lambda tensors: list(map(read, tensors))
    data_ptr, lazy = torch.Tensor.data_ptr, getattr(torch._C, "_is_cow_tensor", None)
    if lazy is None:  # nor can it be told which they are
        return lambda tensors: list(map(data_ptr, tensors))

    def told(tensors: list[Any]) -> list[int]:
        if not any(map(lazy, tensors)):
            return list(map(data_ptr, tensors))
        base = torch._C._data_address
        return [base(tensor) + tensor.storage_offset() * tensor.element_size() for tensor in tensors]

    return told


def storage_beginning(torch: Any) -> Callable[[Any], int]:
    """What tells where a tensor's storage begins; 0 for one without memory."""
    base: Callable[[Any], int] = getattr(torch._C, "_data_address", None) or _touched
    return base


def _touched(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())
