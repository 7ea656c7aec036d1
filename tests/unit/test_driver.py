"""NVML's answers and refusals, by a made-up NVML."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any, Callable

import pynvml
import pytest

from memtui.session.readings import DeviceReading
from memtui.sources.driver import DriverSource
from memtui.sources.driver_processes import split_processes
from tests.support.sessions import GIB

ALL_ONES = (1 << 64) - 1


def fails(name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        raise getattr(pynvml, f"NVMLError_{name}")()

    return call


class Nvml:
    """Two GPUs; each function can be replaced, for one GPU or for both."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.inits = 0
        answers: dict[str, Callable[..., Any]] = {
            "nvmlInit": self._init,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "1.0",
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetHandleByUUID": self._by_uuid,
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetIndex": lambda handle: handle,
            "nvmlDeviceGetName": lambda handle: b"A GPU",
            "nvmlDeviceGetMigMode": fails("NotSupported"),
            "nvmlDeviceGetMemoryInfo": lambda handle, version=None: SimpleNamespace(
                total=24 * GIB, used=5 * GIB, free=18 * GIB, reserved=GIB
            ),
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
                SimpleNamespace(pid=4242, usedGpuMemory=3 * GIB),
                SimpleNamespace(pid=os.getpid(), usedGpuMemory=2 * GIB),
            ],
            "nvmlDeviceGetGraphicsRunningProcesses": lambda handle: [],
            "nvmlDeviceGetMPSComputeRunningProcesses": fails("NotSupported"),
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=7),
            "nvmlDeviceGetPowerUsage": lambda handle: 75_000,
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 300_000,
            "nvmlDeviceGetTemperature": lambda handle, sensor: 45,
        }
        for name, answer in answers.items():
            self.answer(name, answer)

    def answer(self, name: str, function: Callable[..., Any]) -> None:
        self.monkeypatch.setattr(pynvml, name, function)

    def only(self, name: str, handle: int, function: Callable[..., Any]) -> None:
        before = getattr(pynvml, name)
        self.answer(
            name, lambda first, *rest, **named: (function if first == handle else before)(first, *rest, **named)
        )

    def _init(self) -> None:
        self.inits += 1

    def _by_uuid(self, uuid: str) -> int:
        if uuid not in ("GPU-0", "GPU-1"):
            raise pynvml.NVMLError_NotFound()
        return int(uuid[-1])


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    return Nvml(monkeypatch)


def read(source: DriverSource | None = None, *uuids: str) -> tuple[DeviceReading, ...]:
    return (source or DriverSource()).read(4242, uuids or ("GPU-1",)).devices


def test_everything_is_told(nvml: Nvml) -> None:
    """Memory info v2, the process and the others apart, and the quiet line."""
    (device,) = read()

    assert (device.total_bytes, device.used_bytes, device.free_bytes) == (24 * GIB, 5 * GIB, 18 * GIB)
    assert device.driver_reserved_bytes == GIB
    assert device.process_bytes == 3 * GIB
    assert device.other_process_bytes() == 2 * GIB
    assert [process.pid for process in device.others or ()] == [os.getpid()]
    assert (device.utilisation_percent, device.power_milliwatts, device.temperature_celsius) == (7, 75_000, 45)
    assert (device.name, device.reason) == ("A GPU", "")


def test_torch_leaves_the_prefix_out(nvml: Nvml) -> None:
    """A bare UUID is a GPU's or a MIG instance's."""
    assert read(None, "1")[0].index == 1


@pytest.mark.parametrize("refusal", ["FunctionNotFound", "InvalidArgument", "NotSupported"])
def test_an_older_driver_has_memory_info_v1(nvml: Nvml, refusal: str) -> None:
    """Then what the driver reserves is not known apart."""

    def memory(handle: int, version: Any = None) -> Any:
        return fails(refusal)() if version else SimpleNamespace(total=24 * GIB, used=6 * GIB, free=18 * GIB)

    nvml.answer("nvmlDeviceGetMemoryInfo", memory)
    (device,) = read()

    assert device.used_bytes == 6 * GIB
    assert device.driver_reserved_bytes is None


def test_unified_memory_has_no_figures(nvml: Nvml) -> None:
    """NOT_SUPPORTED is not 0."""
    nvml.answer("nvmlDeviceGetMemoryInfo", fails("NotSupported"))
    (device,) = read()

    assert device.total_bytes is None
    assert device.used_bytes is None
    assert "shared with the host" in device.reason
    assert device.temperature_celsius == 45


def test_all_ones_is_unknown(nvml: Nvml) -> None:
    """17179869184 GiB is 2**64 bytes."""
    nvml.answer(
        "nvmlDeviceGetComputeRunningProcesses", lambda handle: [SimpleNamespace(pid=4242, usedGpuMemory=ALL_ONES)]
    )
    (device,) = read()

    assert device.process_bytes is None
    assert "by process" in device.reason


def test_the_others_figures_are_unknown_where_one_is(nvml: Nvml) -> None:
    """A sum with a hole in it is no sum."""
    nvml.answer(
        "nvmlDeviceGetComputeRunningProcesses",
        lambda handle: [SimpleNamespace(pid=4242, usedGpuMemory=GIB), SimpleNamespace(pid=1, usedGpuMemory=None)],
    )
    (device,) = read()

    assert device.process_bytes == GIB
    assert device.other_process_bytes() is None


def test_a_process_that_computes_and_draws_counts_once(nvml: Nvml) -> None:
    """It is in both lists with the same bytes."""
    nvml.answer(
        "nvmlDeviceGetGraphicsRunningProcesses", lambda handle: [SimpleNamespace(pid=4242, usedGpuMemory=3 * GIB)]
    )
    assert read()[0].process_bytes == 3 * GIB


@pytest.mark.parametrize("refusal", ["NoPermission", "NotSupported", "Unknown"])
def test_no_list_of_processes(nvml: Nvml, refusal: str) -> None:
    """Memory is still told, as inside a container on MIG."""
    nvml.answer("nvmlDeviceGetComputeRunningProcesses", fails(refusal))
    (device,) = read()

    assert device.used_bytes == 5 * GIB
    assert device.process_bytes is None
    assert device.others is None
    assert device.reason


@pytest.mark.parametrize("refusal", ["GpuIsLost", "Unknown", "NoPermission"])
def test_one_bad_gpu_leaves_the_others_alone(nvml: Nvml, refusal: str) -> None:
    """Its own line says what is wrong with it."""
    for name in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetName"):
        nvml.only(name, 0, fails(refusal))
    lost, well = read(None, "GPU-0", "GPU-1")

    assert lost.used_bytes is None
    assert lost.reason
    assert well.used_bytes == 5 * GIB
    assert well.reason == ""


def test_a_gpu_nobody_knows(nvml: Nvml) -> None:
    """Hidden from this container, or another machine's."""
    strange, well = read(None, "GPU-9", "GPU-1")

    assert "does not know this device" in strange.reason
    assert well.used_bytes == 5 * GIB


def test_all_devices_where_none_is_named(nvml: Nvml) -> None:
    """For a process without an agent."""
    reading = DriverSource().read(4242)

    assert [device.uuid for device in reading.devices] == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize("refusal", ["Uninitialized", "DriverNotLoaded", "LibRmVersionMismatch"])
def test_a_driver_that_went_away_and_came_back(nvml: Nvml, refusal: str) -> None:
    """GIVEN the driver is unloaded or upgraded, THEN that is told, and the next read starts afresh."""
    source = DriverSource()
    assert read(source)[0].used_bytes == 5 * GIB
    well = pynvml.nvmlDeviceGetMemoryInfo
    nvml.answer("nvmlDeviceGetMemoryInfo", fails(refusal))
    reading = source.read(4242, ("GPU-1",))
    assert reading.reason
    nvml.answer("nvmlDeviceGetMemoryInfo", well)

    assert read(source)[0].used_bytes == 5 * GIB
    assert nvml.inits == 2


def test_no_driver_at_all(nvml: Nvml) -> None:
    """One line, no exception, and it is asked again later."""
    nvml.answer("nvmlInit", fails("LibraryNotFound"))
    reading = DriverSource().read(4242)

    assert reading.devices == ()
    assert reading.reason == "no NVIDIA driver here: no device figures"


def test_pids_of_another_namespace() -> None:
    """GIVEN none of the listed pids is a process here, THEN nobody guesses which one is ours."""
    held, others, reason = split_processes({4_100_001: GIB, 4_100_002: GIB}, 4242)

    assert held is None
    assert [process.name for process in others or ()] == ["(not visible here)"] * 2
    assert "pid namespace" in reason


def test_memory_held_by_what_is_no_longer_there() -> None:
    """A process that vanished between two calls is named so, and breaks nothing."""
    held, others, _ = split_processes({os.getpid(): GIB, 4_100_001: 2 * GIB}, os.getpid())

    assert held == GIB
    assert others is not None
    assert others[0].name == "(not visible here)"
