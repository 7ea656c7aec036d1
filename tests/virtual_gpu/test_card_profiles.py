"""What a process finds under the profile of a card that was named."""

from __future__ import annotations

from typing import Any

import pytest

from memtui.virtual_gpu import environment, find_card, profile_for
from tests.support.virtual_gpu import require_virtual_gpu
from tests.virtual_gpu.conftest import RunChild

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
pytestmark = pytest.mark.virtual_gpu

_LOOK = """
import json, pynvml, torch
pynvml.nvmlInit()
devices = []
for index in range(torch.cuda.device_count()):
    p = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    nvml = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index), version=pynvml.nvmlMemory_v2)
    devices.append({
        "name": p.name, "total": p.total_memory, "capability": [p.major, p.minor], "sms": p.multi_processor_count,
        "threads": p.max_threads_per_multi_processor, "shared": p.shared_memory_per_multiprocessor,
        "cuda_total": total, "taken": total - free,
        "nvml_total": nvml.total, "nvml_reserved": nvml.reserved, "nvml_used": nvml.used,
    })
print(json.dumps(devices))
"""


def _look(run_child: RunChild, name: str, count: int = 1) -> list[dict[str, Any]]:
    require_virtual_gpu()
    devices: list[dict[str, Any]] = run_child(_LOOK, environment(profile_for(name, count)))
    return devices


# Threads and KiB of shared memory of one multiprocessor are those of the CUDA programming guide for the
# compute capability: torch sizes launches and workspaces by them.
@pytest.mark.parametrize(
    ("name", "threads", "shared_kib"),
    [
        ("p100-12g", 2048, 64),
        ("t4", 1024, 64),
        ("rtx-4090", 1536, 100),
        ("a100-40g-1g.5gb", 2048, 164),
        ("b300", 2048, 228),
    ],
)
def test_a_process_sees_the_card(run_child: RunChild, name: str, threads: int, shared_kib: int) -> None:
    card = find_card(name)
    (device,) = _look(run_child, name)
    assert device["name"] == card.full_name
    assert device["total"] == device["cuda_total"] == card.total_bytes
    assert tuple(device["capability"]) == card.compute_capability
    assert device["sms"] == card.multiprocessors
    assert (device["threads"], device["shared"]) == (threads, shared_kib << 10)
    assert device["taken"] == device["nvml_used"] == (card.context_bytes or 0)
    # Where nvidia-smi's total is not known, that of CUDA stands for it.
    assert device["nvml_total"] == (card.nvml_total_bytes or card.total_bytes)
    assert device["nvml_reserved"] == (card.driver_reserved_bytes or 0)


def test_several_of_a_size(run_child: RunChild) -> None:
    devices = _look(run_child, "24GiB", 2)
    assert [device["total"] for device in devices] == [24 << 30] * 2
    assert {device["name"] for device in devices} == {"virtual GPU"}
