"""Which stand-in library exports what, and the source of those that are generated.

Torch's own shared objects say what they need, so a function that a newer torch starts to call becomes
a generated stub: "done", or a refusal where its name says that the caller expects a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from memtui.virtual_gpu.elf import SharedObject, read_shared_object

#: Sources by library stem; a library that is not here has generated stubs only.
SOURCES: Mapping[str, tuple[str, ...]] = {
    "libcudart": (
        "runtime_error.c",
        "runtime_device.c",
        "runtime_memory.c",
        "runtime_share.c",
        "runtime_stream.c",
        "runtime_kernel.c",
        "runtime_selected.c",
    ),
    "libcuda": ("driver.c", "driver_memory.c"),
    "libnvidia-ml": ("nvml.c", "nvml_figures.c", "nvml_sensors.c", "nvml_absent.c"),
    "libcublas": ("cublas.c", "cublas_products.c"),
    "libcublasLt": ("cublaslt.c",),
    "libcudnn": (
        "cudnn.c",
        "cudnn_descriptors.c",
        "cudnn_convolution.c",
        "cudnn_workspace.c",
        "cudnn_load.c",
        "cudnn_rnn.c",
    ),
    "libcufft": ("cufft.c",),
    "libcusparse": ("cusparse.c",),
    "libcusolver": ("cusolver.c",),
    "libcupti": ("cupti.c",),
    "libnccl": ("nccl.c",),
    "libnvrtc": ("nvrtc.c",),
}

_VENDOR = re.compile(r"lib(cu\w*|nv\w*|nccl)\.so\.\d+$")

#: Libraries that torch opens by name and does not list.
_OPENED_BY_NAME = ("libcuda.so.1", "libnvidia-ml.so.1")

#: Owners of symbols that are imported without a version, by prefix.
_PREFIXES = (
    ("nccl", "libnccl"),
    ("cusparseLt", "libcusparseLt"),
    ("cuFile", "libcufile"),
    ("nvshmem", "libnvshmem_host"),
    ("nvml", "libnvidia-ml"),
)
_DRIVER_SYMBOL = re.compile(r"cu[A-Z]")

#: Driver functions that triton and inductor link against or look up, beyond those that torch's own libraries import.
_DRIVER_EXTRAS = (
    "cuCtxSetLimit",
    "cuDevicePrimaryCtxRelease_v2",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuFuncSetAttribute",
    "cuFuncSetCacheConfig",
    "cuLogsUnregisterCallback",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuModuleGetGlobal_v2",
    "cuModuleUnload",
    "cuMulticastAddDevice",
    "cuMulticastBindMem",
    "cuMulticastUnbind",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuTensorMapEncodeIm2col",
)

#: A stub that ought to fill in a result must fail, not leave garbage behind.
_RETURNS_RESULT = re.compile(r"[sS]izes?2?(_v\d+)?$|_bufferSize|Get|Create|Query|Find|Info|MemAlloc")

#: "Not supported" in each library's own numbers.
_NOT_SUPPORTED = {
    "libcudart": 801,
    "libcuda": 801,
    "libcudnn": 3000,
    "libcufft": 16,
    "libcupti": 27,
    "libcusolver": 9,
    "libcusparse": 10,
    "libcusparseLt": 10,
    "libnccl": 5,
    "libnvidia-ml": 3,
    "libnvrtc": 11,
}
_CUBLAS_NOT_SUPPORTED = 15
_CUDNN_8_NOT_SUPPORTED = 9


@dataclass
class StubLibrary:
    """One library to build: its SONAME, the version node of its symbols or an empty text, and what torch asks of it."""

    soname: str
    version: str = ""
    symbols: set[str] = field(default_factory=set)

    @property
    def stem(self) -> str:
        """The name without ".so" and version: libcudart."""
        return self.soname.split(".so")[0]

    @property
    def sources(self) -> tuple[str, ...]:
        """The hand-written files, relative to the source folder."""
        return SOURCES.get(self.stem, ())

    def generated_source(self) -> str:
        """C text with a weak definition of every symbol that torch asks for; hand-written ones replace it."""
        lines = [
            '#include "core.h"',
            "#define STUB(name) __attribute__((weak)) VGPU_API long name(void); long name(void)",
        ]
        lines += [f"STUB({name}) {{ {self._body(name)} }}" for name in sorted(self.symbols)]
        return "\n".join(lines) + "\n"

    def _body(self, name: str) -> str:
        if name.endswith(("String", "ErrorName")):
            return f'return (long)"{name}";'
        if _RETURNS_RESULT.search(name):
            return f'return vgpu_refuse("{name}", {self._not_supported()});'
        return f'return vgpu_nothing("{name}");'

    def _not_supported(self) -> int:
        if self.soname.endswith("libcudnn.so.8"):
            return _CUDNN_8_NOT_SUPPORTED
        return _NOT_SUPPORTED.get(self.stem, _CUBLAS_NOT_SUPPORTED)

    def version_script(self) -> str:
        """Linker version script: everything exported is under the version that torch binds to."""
        return f"{self.version} {{ global: *; }};\n"


def plan(libraries: Iterable[Path]) -> list[StubLibrary]:
    """The stand-ins that these shared objects need, in the order of their SONAMEs."""
    return plan_for([read_shared_object(library) for library in libraries])


def plan_for(objects: Iterable[SharedObject]) -> list[StubLibrary]:
    """As `plan`, of shared objects that have been read."""
    objects = list(objects)
    sonames = set(_OPENED_BY_NAME)
    for item in objects:
        sonames.update(name for name in item.needed if _VENDOR.match(name))
    stubs = {soname: StubLibrary(soname) for soname in sonames}
    by_stem = {stub.stem: stub for stub in stubs.values()}
    for item in objects:
        for symbol in item.imports:
            owner = stubs.get(symbol.soname)
            if owner is None and not symbol.soname:
                owner = _owner_by_prefix(symbol.name, by_stem)
            if owner is not None:
                owner.symbols.add(symbol.name)
                owner.version = owner.version or symbol.version
    by_stem["libcuda"].symbols.update(_DRIVER_EXTRAS)
    return [stubs[soname] for soname in sorted(stubs)]


def _owner_by_prefix(name: str, by_stem: Mapping[str, StubLibrary]) -> StubLibrary | None:
    for prefix, stem in _PREFIXES:
        if name.startswith(prefix):
            return by_stem.get(stem)
    return by_stem["libcuda"] if _DRIVER_SYMBOL.match(name) else None
