"""CUDA_VISIBLE_DEVICES, read as CUDA reads it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.virtual_gpu import virtual_environment
from tests.virtual_gpu.conftest import RunChild

pytestmark = pytest.mark.virtual_gpu

# The runtime library alone: importing torch for every case would take a minute.
_UUIDS = """
import ctypes, json, os, sys
driver = ctypes.CDLL('libcuda.so.1')
if len(sys.argv) > 1: os.environ['CUDA_VISIBLE_DEVICES'] = sys.argv[1]
driver.cuInit(0)
count = ctypes.c_int()
driver.cuDeviceGetCount(ctypes.byref(count))
def uuid(ordinal):
    text = (ctypes.c_ubyte * 16)()
    assert driver.cuDeviceGetUuid_v2(text, ordinal) == 0
    t = bytes(text).hex()
    return f'GPU-{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}'
print(json.dumps([uuid(i) for i in range(count.value)]))
"""


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    variables = virtual_environment(count=4)
    variables.pop("CUDA_VISIBLE_DEVICES", None)
    return variables


@pytest.fixture(scope="module")
def uuids(environment: dict[str, str]) -> list[str]:
    child = subprocess.run([sys.executable, "-c", _UUIDS], env=environment, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(child.stdout)
    assert len(set(found)) == 4
    return found


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("0,1,2,3", [0, 1, 2, 3]),
        ("2", [2]),
        ("3,1", [3, 1]),
        (" 1 , 0 ", [1, 0]),
        ("", []),
        ("-1", []),
        ("0,9,1", [0]),
        ("0,-1,1", [0]),
        ("none", []),
        ("1,1", []),
    ],
)
def test_by_number(
    run_child: RunChild, environment: dict[str, str], uuids: list[str], setting: str, expected: list[int]
) -> None:
    seen = run_child(_UUIDS, {**environment, "CUDA_VISIBLE_DEVICES": setting})
    assert seen == [uuids[index] for index in expected]


def test_by_uuid(run_child: RunChild, environment: dict[str, str], uuids: list[str]) -> None:
    def seen(*entries: str) -> list[str]:
        found: list[str] = run_child(_UUIDS, {**environment, "CUDA_VISIBLE_DEVICES": ",".join(entries)})
        return found

    assert seen(uuids[2]) == [uuids[2]]
    assert seen(uuids[3], uuids[0]) == [uuids[3], uuids[0]]
    assert seen(uuids[1][:8]) == [uuids[1]]  # a prefix that no other device has
    assert seen("GPU-") == []  # one that all have
    assert seen(uuids[0], "GPU-ffffffff-0000") == [uuids[0]]
    assert seen("2", uuids[0]) == [uuids[2], uuids[0]]


def test_set_by_the_program_itself(run_child: RunChild, environment: dict[str, str], uuids: list[str]) -> None:
    assert run_child(_UUIDS, environment, "3") == [uuids[3]]


def test_torch_and_nvml_agree(run_child: RunChild, environment: dict[str, str], uuids: list[str]) -> None:
    # NVML numbers physical devices; torch maps its own numbers to them.
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    source = """
import json, pynvml, torch
x = torch.empty(8 << 20, dtype=torch.uint8, device='cuda:0')
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
used = [pynvml.nvmlDeviceGetMemoryInfo(h).used >> 20 for h in handles]
print(json.dumps([torch.cuda.device_count(), used, 'GPU-' + str(torch.cuda.get_device_properties(0).uuid)]))
"""
    by_number = run_child(source, {**environment, "CUDA_VISIBLE_DEVICES": "2,0"})
    assert by_number == [2, [0, 0, 20, 0], uuids[2]]
    by_uuid = run_child(source, {**environment, "CUDA_VISIBLE_DEVICES": uuids[1]})
    assert by_uuid[0] == 1
    assert by_uuid[2] == uuids[1]
