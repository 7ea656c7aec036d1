"""Stands in for PyTorch where a Python has none: enough of it for the agent to be there, and nothing to watch."""

import mmap
import os
from types import SimpleNamespace

from . import autograd, nn, optim  # noqa: F401

__version__ = "2.4.0"

# As the system shows a process that has loaded PyTorch.
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libtorch_stand_in.so"), "rb") as _file:
    _library = mmap.mmap(_file.fileno(), 0, access=mmap.ACCESS_READ)


class Tensor:
    """A tensor."""

    def data_ptr(self) -> int:
        """Nowhere."""
        return 0


class UntypedStorage:
    """A storage."""


def is_grad_enabled() -> bool:
    """Always."""
    return True


class _NoSubclass:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


compiler = SimpleNamespace(is_dynamo_compiling=lambda: False)
_C = SimpleNamespace(DisableTorchFunctionSubclass=_NoSubclass)
cuda = SimpleNamespace(is_initialized=lambda: False, _queued_calls=[], is_available=lambda: False)
