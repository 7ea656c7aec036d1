"""Parameters that a program which is only tried out builds on the host: their memory is given back as they are built.

Of a model with 7 billion parameters that is 28 GB, which a machine without its GPU need not have, and minutes of random
numbers. Nothing of a trial depends on them: a virtual GPU makes no long copies. So once they are more than a limit, a
thread returns their pages to the system again and again, which read as zeros afterwards, and random numbers are no
longer drawn for them. Of a program with fewer parameters no value changes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
import weakref
from typing import Any, Optional

from ..wire.frames import Event
from . import REHEARSAL_HOST

_PERIOD_SECONDS = 0.05
#: What is smaller stays as it is.
_LEAST_BYTES = 1 << 16
#: What draws random numbers into a tensor and takes long; torch.nn.init calls these.
_DRAWING = ("uniform_", "normal_")
_DONT_NEED = 4  # MADV_DONTNEED, linux/mman.h


class HostParameters:
    """Counts parameters on the host as modules register them; `limit_bytes` of them keep their values."""

    def __init__(self, torch: Any, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._torch = torch
        self._addresses: set[int] = set()  # of the storages of large parameters, also of some that are gone
        self.registered_bytes = 0
        self._told_bytes = 0
        self._modules: dict[int, Any] = {}  # weak references, by id
        self._thread: Optional[threading.Thread] = None
        # With Python's lock held, so that no other line of Python frees what is just given back.
        self._advise = ctypes.PyDLL(None).madvise
        self._advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def registered(self, module: Any, parameter: Any) -> None:
        """`parameter` is being registered on `module`; as a rule it is filled afterwards."""
        if not self._on_host(parameter):
            return
        size_bytes = parameter.numel() * parameter.element_size()
        self.registered_bytes += size_bytes
        if size_bytes >= _LEAST_BYTES:
            self._addresses.add(parameter.data_ptr())
        key = id(module)
        if key not in self._modules:
            self._modules[key] = weakref.ref(module, lambda _: self._modules.pop(key, None))
        if self.left_out and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._give_back, name="memtui-host", daemon=True)
            self._draw_nothing()
            self._thread.start()

    def _on_host(self, parameter: Any) -> bool:
        # Of another class, it may have no memory: not initialised yet, or fake.
        return type(parameter) is self._torch.nn.Parameter and parameter.device.type == "cpu"

    @property
    def left_out(self) -> bool:
        """Whether values are no longer kept."""
        return self.registered_bytes > self.limit_bytes

    def event(self, step: int) -> Optional[Event]:
        """What there is to tell since the last time."""
        if not self.left_out or self.registered_bytes == self._told_bytes:
            return None
        self._told_bytes = self.registered_bytes
        figures = {"parameter_bytes": self._told_bytes, "limit_bytes": self.limit_bytes}
        return Event("host_parameters", time.monotonic_ns(), step, "", None, figures)

    def _give_back(self) -> None:
        """Until there is nothing on the host any more, which as a rule is when the model is moved to a device."""
        while self._give_back_once():
            time.sleep(_PERIOD_SECONDS)
        self._addresses.clear()
        for name in _DRAWING:
            if isinstance(vars(self._torch.Tensor).get(name), _Drawing):
                delattr(self._torch.Tensor, name)

    def _draw_nothing(self) -> None:
        for name in _DRAWING:
            if name not in vars(self._torch.Tensor):  # where the program has its own, that stays
                setattr(self._torch.Tensor, name, _Drawing(self._torch, name, self._addresses))

    def _give_back_once(self) -> bool:
        found = False
        for reference in list(self._modules.values()):
            module = reference()
            parameters = {} if module is None else vars(module).get("_parameters", {})
            for parameter in list(parameters.values()):
                if not self._on_host(parameter):
                    continue
                found = True
                storage = parameter.untyped_storage()  # held, should the parameter be given another one
                self._return_pages(storage.data_ptr(), storage.nbytes())
        return found

    def _return_pages(self, address: int, size_bytes: int) -> None:
        """The whole pages of it; what cannot be returned (locked pages) stays."""
        begin = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (address + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if address and size_bytes >= _LEAST_BYTES and end > begin:
            self._advise(begin, end - begin, _DONT_NEED)


class _Drawing:
    """A method of tensors that leaves those at some addresses on the host as they are."""

    def __init__(self, torch: Any, name: str, addresses: set[int]) -> None:
        self._original, self._addresses = getattr(torch.Tensor, name), addresses
        self._classes = (torch.Tensor, torch.nn.Parameter)

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        if type(tensor) in self._classes and tensor.device.type == "cpu" and tensor.data_ptr() in self._addresses:
            return lambda *_, **__: tensor
        return self._original.__get__(tensor, owner)


def host_parameters(torch: Any) -> Optional[HostParameters]:
    """As the environment asks for them; None where it does not."""
    asked = os.environ.get(REHEARSAL_HOST, "")
    return HostParameters(torch, int(asked)) if asked.isdigit() and hasattr(mmap, "MADV_DONTNEED") else None
