"""What NVML says in another process: a viewer's view of the virtual GPUs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.support.virtual_gpu import virtual_environment
from tests.virtual_gpu.conftest import RunChild

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
pytestmark = pytest.mark.virtual_gpu

MIB = 1 << 20

_HOLD = """
import sys, torch
x = torch.empty(int(sys.argv[1]) << 20, dtype=torch.uint8, device='cuda:' + sys.argv[2])
print('held', flush=True)
sys.stdin.readline()
"""

_LOOK = """
import json, pynvml as n
n.nvmlInit()
def tried(function, *arguments, **named):
    try: return function(*arguments, **named)
    except n.NVMLError as error: return type(error).__name__
def memory(handle, **version):
    m = tried(n.nvmlDeviceGetMemoryInfo, handle, **version)
    fields = ('total', 'reserved', 'used', 'free')
    return m if isinstance(m, str) else {f: getattr(m, f) for f in fields if hasattr(m, f)}
def look(handle):
    listed = n.nvmlDeviceGetComputeRunningProcesses(handle)
    return dict(memory=memory(handle), memory_v2=memory(handle, version=n.nvmlMemory_v2),
        processes=[[p.pid, p.usedGpuMemory] for p in listed],
        processes_v2=[[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses_v2(handle)],
        samples=tried(lambda: [s.pid for s in n.nvmlDeviceGetProcessUtilization(handle, 0)]),
        samples_v2=tried(lambda: [s.pid for s in n.nvmlDeviceGetProcessesUtilizationInfo(handle, 0)]))
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
print(json.dumps([look(h) for h in handles]))
"""

# pynvml cannot list these where the bytes are unavailable: it assigns None to a C integer.
_LOOK_AT_DETAILS = """
import json, pynvml as n
n.nvmlInit()
handle = n.nvmlDeviceGetHandleByIndex(0)
found = n.nvmlDeviceGetRunningProcessDetailList(handle, n.nvmlProcessDetailList_v1, n.NVML_PROCESS_MODE_COMPUTE)
print(json.dumps([[p.pid, p.usedGpuMemory] for p in found]))
"""


@contextmanager
def _holding(environment: Mapping[str, str], mebibytes: int, device: int = 0) -> Iterator[int]:
    """A child that holds memory of a device; yields its pid."""
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(mebibytes), str(device)],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        try:
            assert child.stdout.readline() == "held\n"
            yield child.pid
        finally:
            child.kill()


def test_another_process_sees_the_bytes_of_each(run_child: RunChild) -> None:
    # GIVEN two processes that hold memory of two devices
    environment = virtual_environment(memory="24GiB,2GiB", count=2, context="400MiB")
    with _holding(environment, 1000, 0) as first, _holding(environment, 100, 1) as second:
        # WHEN a third asks NVML
        devices = run_child(_LOOK, environment)
        details = run_child(_LOOK_AT_DETAILS, environment)
    # THEN it sees their pids and their bytes, contexts included, in every form that NVML tells them
    for device, pid, used, total in ((0, first, 1400, 24 << 10), (1, second, 500, 2 << 10)):
        figures = devices[device]
        free = (total - used) * MIB
        assert figures["memory"] == {"total": total * MIB, "used": used * MIB, "free": free}
        assert figures["memory_v2"] == {"total": total * MIB, "reserved": 0, "used": used * MIB, "free": free}
        assert figures["processes"] == figures["processes_v2"] == [[pid, used * MIB]]
        assert figures["samples"] == figures["samples_v2"] == [pid]
    assert details == [[first, 1400 * MIB]]


def test_the_switches_that_make_figures_fail(run_child: RunChild) -> None:
    environment = virtual_environment(memory="24GiB", driver_reserved="500MiB", pid_offset=100_000)
    with _holding(environment, 100) as pid:
        offset = run_child(_LOOK, environment)[0]
        unavailable = run_child(_LOOK, {**environment, "VGPU_NVML_PROCESS_MEMORY": "unavailable"})[0]
        lost = run_child(_LOOK, {**environment, "VGPU_NVML_MEMORY": "lost"})[0]
        unsupported = run_child(_LOOK, {**environment, "VGPU_NVML_MEMORY": "not_supported"})[0]
    reserved = 500 * MIB
    total = 24 << 30
    assert offset["processes"] == [[pid + 100_000, 100 * MIB]]
    assert offset["memory"] == {"total": total, "used": 600 * MIB, "free": total - 600 * MIB}
    assert offset["memory_v2"] == {
        "total": total,
        "reserved": reserved,
        "used": 100 * MIB,
        "free": total - reserved - 100 * MIB,
    }
    assert unavailable["processes"] == unavailable["processes_v2"] == [[pid + 100_000, None]]
    assert lost["memory"] == lost["memory_v2"] == "NVMLError_GpuIsLost"
    assert unsupported["memory"] == unsupported["memory_v2"] == "NVMLError_NotSupported"
    assert unsupported["processes"] == [[pid + 100_000, 100 * MIB]]


def test_what_a_device_is(run_child: RunChild) -> None:
    source = """
import json, pynvml as n
def error(function, *arguments):
    try: function(*arguments)
    except n.NVMLError as e: return type(e).__name__
before = error(n.nvmlDeviceGetCount)
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(1)
uuid = n.nvmlDeviceGetUUID(h)
bus = n.nvmlDeviceGetPciInfo(h).busId
found = n.nvmlDeviceGetHandleByUUID(uuid), n.nvmlDeviceGetHandleByPciBusId(bus)
same = [n.nvmlDeviceGetIndex(handle) for handle in found]
facts = [n.nvmlDeviceGetName(h), n.nvmlDeviceGetIndex(h), list(n.nvmlDeviceGetCudaComputeCapability(h)),
         n.nvmlDeviceGetUtilizationRates(h).gpu, n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
         n.nvmlDeviceGetPowerUsage(h), n.nvmlDeviceGetEnforcedPowerLimit(h), n.nvmlDeviceGetFanSpeed(h)]
errors = [error(n.nvmlDeviceGetMigMode, h), error(n.nvmlDeviceGetHandleByIndex, 2),
          error(n.nvmlDeviceGetHandleByUUID, 'GPU-0')]
driver = n.nvmlSystemGetDriverVersion()
n.nvmlShutdown()
print(json.dumps([before, uuid, same, facts, errors, driver, error(n.nvmlDeviceGetName, h)]))
"""
    environment = virtual_environment(count=2, name="NVIDIA L4", cc="8.9", utilization=83)
    before, uuid, same, facts, errors, driver, after = run_child(source, environment)
    assert before == after == "NVMLError_Uninitialized"
    assert uuid.startswith("GPU-")
    assert same == [1, 1]
    assert facts == ["NVIDIA L4", 1, [8, 9], 83, 45, 75_000, 300_000, 30]
    assert errors == ["NVMLError_NotSupported", "NVMLError_InvalidArgument", "NVMLError_NotFound"]
    assert driver == "580.00.vgpu"


def test_torch_asks_nvml_too(run_child: RunChild) -> None:
    source = """
import json, torch
x = torch.empty(64 << 20, dtype=torch.uint8, device='cuda')
processes = torch.cuda.list_gpu_processes().splitlines()
print(json.dumps([processes[-1], torch.cuda.utilization(), torch.cuda.temperature()]))
"""
    processes, utilization, temperature = run_child(source, virtual_environment(utilization=7))
    assert "64.000 MB GPU memory" in processes
    assert (utilization, temperature) == (7, 45)


def test_a_killed_process_holds_nothing(run_child: RunChild) -> None:
    environment = virtual_environment(memory="1GiB")
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, "1000", "0"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    with child:
        assert child.stdout.readline() == "held\n"
        # WHEN it is killed but not waited for: a zombie still has its pid
        child.kill()
        source = "import torch; x = torch.empty(900 << 20, dtype=torch.uint8, device='cuda'); print(len(x) >> 20)"
        # THEN its memory can be had, and NVML does not list it
        assert run_child(source, environment) == 900
        assert run_child(_LOOK, environment)[0]["processes"] == []
