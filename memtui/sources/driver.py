"""What the NVIDIA driver says of devices and processes, through NVML; by UUID, never by index.

Blocking calls: read it in a thread of its own. CUDA_VISIBLE_DEVICES means nothing here: NVML sees every device and
orders them its own way, so devices are matched by the UUID that the process itself gave.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Optional

import pynvml

from memtui.session.readings import DeviceReading, DriverReading

from .driver_library import LIBRARY_VARIABLE, MACHINE_VARIABLE
from .driver_processes import listed_processes, split_processes

#: NVML's "not available"; some versions hand it on as a number of bytes.
_NO_VALUE = 1 << 62

#: After these the library has to be initialised again: the driver was unloaded, upgraded or reset.
_REINITIALISE = tuple(
    getattr(pynvml, name)
    for name in (
        "NVMLError_Uninitialized",
        "NVMLError_DriverNotLoaded",
        "NVMLError_LibRmVersionMismatch",
        "NVMLError_ResetRequired",
    )
)


class DriverSource:
    """NVML, initialised at the first read and again after trouble. One thread at a time."""

    def __init__(self) -> None:
        self._ready = False
        self._machine: tuple[Optional[str], ...] = ()
        self._version = ""
        self._handles: dict[str, Any] = {}

    def read(self, pid: int, uuids: Optional[Iterable[str]] = None) -> DriverReading:
        """Every device of `uuids` (all devices where that is None), as seen for process `pid`. Never raises NVMLError.

        A device that cannot be read comes with the reason, beside the others.
        """
        machine = tuple(map(os.environ.get, (LIBRARY_VARIABLE, MACHINE_VARIABLE)))
        if machine != self._machine:
            self.close()  # other virtual GPUs than before
            self._machine = machine
        try:
            self._initialise()
            names = list(self._all() if uuids is None else uuids)
        except pynvml.NVMLError as error:
            self.close()
            return DriverReading(time.monotonic_ns(), reason=_reason(error))
        devices = []
        for uuid in names:
            try:
                devices.append(self._device(uuid, pid))
            except _REINITIALISE as error:
                self.close()
                return DriverReading(time.monotonic_ns(), tuple(devices), self._version, _reason(error))
            except pynvml.NVMLError as error:
                self._handles.pop(uuid, None)
                devices.append(DeviceReading(uuid, time.monotonic_ns(), reason=_reason(error)))
        return DriverReading(time.monotonic_ns(), tuple(devices), self._version)

    def close(self) -> None:
        """Lets go of the library; the next read starts afresh."""
        self._handles.clear()
        if self._ready:
            self._ready = False
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _initialise(self) -> None:
        if self._ready:
            return
        other = os.environ.get(LIBRARY_VARIABLE)
        if other:
            with contextlib.suppress(OSError):
                ctypes.CDLL(other)
        pynvml.nvmlInit()
        self._ready = True
        self._version = _text(pynvml.nvmlSystemGetDriverVersion())

    def _all(self) -> list[str]:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
            except _REINITIALISE:
                raise
            except pynvml.NVMLError:
                continue  # one that is lost keeps nobody from the others
            self._handles[uuid] = handle
            found += [uuid, *self._instances(handle)]
        return found

    def _instances(self, handle: Any) -> list[str]:
        found = []
        with contextlib.suppress(pynvml.NVMLError):
            if not pynvml.nvmlDeviceGetMigMode(handle)[0]:
                return []
            for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
                with contextlib.suppress(pynvml.NVMLError):
                    instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
                    uuid = _text(pynvml.nvmlDeviceGetUUID(instance))
                    self._handles[uuid] = instance
                    found.append(uuid)
        return found

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            # torch leaves the prefix out.
            names = [uuid] if uuid.startswith(("GPU-", "MIG-")) else [f"GPU-{uuid}", f"MIG-{uuid}"]
            for name in names[:-1]:
                with contextlib.suppress(pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
                    self._handles[uuid] = pynvml.nvmlDeviceGetHandleByUUID(name)
                    return self._handles[uuid]
            self._handles[uuid] = pynvml.nvmlDeviceGetHandleByUUID(names[-1])
        return self._handles[uuid]

    def _device(self, uuid: str, pid: int) -> DeviceReading:
        handle = self._handle(uuid)
        begun = time.monotonic_ns()
        memory, reason = _memory(handle)
        processes, process_reason = listed_processes(handle)
        instant = (begun + time.monotonic_ns()) // 2  # memory and processes are read one right after the other
        held, others, identity_reason = split_processes(processes, pid)
        reasons = [text for text in (reason, process_reason or identity_reason) if text]
        return DeviceReading(
            uuid=uuid,
            time_ns=instant,
            index=_optional(pynvml.nvmlDeviceGetIndex, handle),
            name=_text(_optional(pynvml.nvmlDeviceGetName, handle) or ""),
            process_bytes=held,
            others=others,
            utilisation_percent=_utilisation(handle),
            power_milliwatts=_optional(pynvml.nvmlDeviceGetPowerUsage, handle),
            power_limit_milliwatts=_optional(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle),
            temperature_celsius=_optional(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            reason="; ".join(reasons),
            **memory,
        )


def _memory(handle: Any) -> tuple[dict[str, Optional[int]], str]:
    """Total, used, free and driver-reserved bytes; v1, where v2 is not to be had, counts the reserved ones as used."""
    try:
        try:
            info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            reserved: Optional[int] = _known(info.reserved)
        except (
            pynvml.NVMLError_FunctionNotFound,
            pynvml.NVMLError_InvalidArgument,
            pynvml.NVMLError_ArgumentVersionMismatch,
            pynvml.NVMLError_NotSupported,
        ):
            info, reserved = pynvml.nvmlDeviceGetMemoryInfo(handle), None
    except pynvml.NVMLError_NotSupported:
        return {}, "the driver has no memory figures for this device (its memory is shared with the host)"
    except _REINITIALISE:
        raise
    except pynvml.NVMLError as error:
        return {}, _reason(error)
    total, used, free = _known(info.total), _known(info.used), _known(info.free)
    if not total:
        return {}, "the driver has no memory figures for this device"
    memory = {"total_bytes": total, "used_bytes": used, "free_bytes": free, "driver_reserved_bytes": reserved}
    return memory, ""


def _known(value: int) -> Optional[int]:
    return int(value) if 0 <= value < _NO_VALUE else None


def _utilisation(handle: Any) -> Optional[int]:
    rates = _optional(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return None if rates is None else int(rates.gpu)


def _optional(function: Callable[..., Any], *arguments: Any) -> Any:
    """What NVML answers, None where this device has no such thing."""
    try:
        return function(*arguments)
    except _REINITIALISE:
        raise
    except pynvml.NVMLError:
        return None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


_REASONS = {
    "NVMLError_LibraryNotFound": "no NVIDIA driver here: no device figures",
    "NVMLError_DriverNotLoaded": "the NVIDIA driver is not loaded: no device figures",
    "NVMLError_LibRmVersionMismatch": "the driver and its library differ in version (upgraded without a reboot?)",
    "NVMLError_GpuIsLost": "the GPU is lost: it has fallen off the bus or must be reset",
    "NVMLError_NoPermission": "the driver gives this user no figures of this device",
    "NVMLError_NotFound": "the driver does not know this device (it is hidden from this container?)",
    "NVMLError_NotSupported": "the driver does not support this on this device",
}


def _reason(error: pynvml.NVMLError) -> str:
    return _REASONS.get(type(error).__name__, f"NVML: {error}")
